package pgtest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Holder is a third party: a session with a transaction that has locked something.
type Holder struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	once sync.Once
}

// Hold runs statements, as "SELECT … FOR UPDATE", in a transaction that stays open, and returns when they
// were done. It ends with the test at the latest, and changes nothing.
func Hold(t testing.TB, url string, statements ...string) *Holder {
	t.Helper()
	h, err := hold(url, statements)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Release)
	return h
}

func hold(url string, statements []string) (*Holder, error) {
	cmd, err := psqlCommand(context.Background(), url)
	if err != nil {
		return nil, err
	}
	h := &Holder{cmd: cmd}
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.in, err = cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	err = cmd.Start()
	if err != nil {
		return nil, err
	}
	const held = "pgtest holds it"
	fmt.Fprintf(h.in, "BEGIN;\n%s;\n\\echo %s\n", strings.Join(statements, ";\n"), held)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == held {
			return h, nil
		}
	}
	h.Release()
	return nil, fmt.Errorf("hold %q: %s", statements, complaint.Bytes())
}

// Release ends the transaction, without a change, and returns when others can have what it held.
func (h *Holder) Release() {
	h.once.Do(func() {
		fmt.Fprintln(h.in, "ROLLBACK;")
		h.in.Close()
		_ = h.cmd.Wait()
	})
}

// WaitBlocked returns when n sessions of a database wait for a lock.
func WaitBlocked(t testing.TB, url string, n int) {
	t.Helper()
	waitFor(t, url, strconv.Itoa(n), `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`)
}
