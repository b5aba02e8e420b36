package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"x402-wallet/pay"
)

// Content goes to a file or a program as it came, whole. The limits and escapes are for terminals.

// maxShown is how much of an answer's content is printed on a terminal, in bytes.
const maxShown = 64 << 10

func isServed(r pay.Result) bool {
	return r.Status != pay.StatusUnserved && r.Status != pay.StatusNotPaid
}

// paid gives content to stdout or a file, and says on stderr what it cost. Where only a part of the content
// came, isWhole is false, except for JSON and a terminal, which say so themselves. An error means that the
// content did not get out.
func (u *ui) paid(r pay.Result, file string) (isWhole bool, err error) {
	toFile := file != "" && isServed(r)
	isWhole = !r.Whole.Truncated || (!toFile && (u.json || u.terminal))
	switch {
	case toFile && isWhole:
		if err := save(file, pay.Bytes(r.Whole)); err != nil {
			return false, err
		}
		r.ContentBegin, r.Content, r.ContentEnd, r.ContentTruncated, r.ContentURI = "", "", "", false, ""
		if !u.json {
			u.note("written: %s, %d bytes", safe(file), len(pay.Bytes(r.Whole)))
		}
	case toFile, u.json: // it is said below
	case u.terminal:
		u.shown(r)
	default:
		_, _ = u.out.Write(pay.Bytes(r.Whole))
	}
	if u.json {
		err = u.printJSON(r)
	}
	if err == nil {
		err = u.out.bad
	}
	if err != nil {
		return false, err
	}
	if !u.json {
		u.cost(r)
	}
	if !isWhole {
		u.short(r, file)
	}
	return isWhole, nil
}

// shown prints content on a terminal, where a person scrolls.
func (u *ui) shown(r pay.Result) {
	text := r.Content
	if text != "" { // a model pays by the word
		text = pay.Part(pay.Readable(r.Whole), 0, maxShown).Text
		u.say("%s", strings.TrimSuffix(safeText(text), "\n"))
	}
	if u.out.bad == nil && (r.Whole.Truncated || len(text) < r.ContentLength) {
		where := "the rest is not stored"
		if r.ContentURI != "" {
			where = "x402-wallet show " + r.PaymentID + " --content > FILE"
		}
		u.note("this is not all of the content, which is long or not text; %s", where)
	}
}

// short says that a file or a program did not get all of the content.
func (u *ui) short(r pay.Result, file string) {
	what := fmt.Sprintf("this is not all of the content: its first %d bytes came, and no more is kept",
		len(r.Whole.Body))
	if file != "" {
		what += "; " + safe(file) + " is not written"
	}
	u.note("%s %s", paint(u.colorErr, red, "failed:"), what)
	if file != "" && r.ContentURI != "" {
		u.note("  what came is printed by x402-wallet show %s --content > FILE", r.PaymentID)
	}
}

// place checks, before anything is paid, that a file can be written, and resolves a link to it. "-" is
// stdout, "".
func place(file string) (string, error) {
	if file == "" || file == "-" {
		return "", nil
	}
	info, err := os.Stat(file)
	switch {
	case err == nil && info.IsDir():
		return "", usagef("--output %s is a directory", file)
	case err == nil && !info.Mode().IsRegular(): // as /dev/null
		return file, nil
	case err == nil:
		file, err = filepath.EvalSymlinks(file)
		if err != nil {
			return "", usagef("--output %v", err)
		}
	}
	probe, err := os.CreateTemp(filepath.Dir(file), ".x402-wallet.*.tmp")
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause
		}
		return "", usagef("--output %s cannot be written: %v", file, err)
	}
	return file, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// save writes content to a file that place has checked. A device or a pipe cannot be replaced.
func save(file string, content []byte) error {
	write := func(out io.Writer) error {
		_, err := out.Write(content)
		return err
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().IsRegular() {
		return writeTo(file, write)
	}
	out, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(write(out), out.Close())
}
