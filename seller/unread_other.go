//go:build !unix

package seller

import "net"

// unread reports that nothing waits to be read from a connection: here a read that is pending has it already.
func unread(net.Conn) (waiting bool, err error) { return false, nil }
