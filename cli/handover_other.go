//go:build !unix

package cli

import "os"

// streams are what a command has.
func (p *Program) streams(stderr *os.File) (files []*os.File, done func()) {
	return []*os.File{p.Stdin, p.Stdout, stderr}, func() {}
}
