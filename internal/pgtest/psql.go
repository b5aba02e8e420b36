package pgtest

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// SQL runs statements by psql, and gives what they answer: rows as lines, columns with | between them, NULL
// as nothing. Each is a transaction of its own.
func SQL(t testing.TB, url string, statements ...string) string {
	t.Helper()
	said, err := psql(url, statements...)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// SQL is the same in one of this server's databases, as its superuser.
func (c *Cluster) SQL(t testing.TB, database string, statements ...string) string {
	t.Helper()
	return SQL(t, c.URL(database), statements...)
}

func psql(url string, statements ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd, err := psqlCommand(ctx, url)
	if err != nil {
		return "", err
	}
	for _, s := range statements {
		cmd.Args = append(cmd.Args, "-c", s)
	}
	return run(cmd)
}

// waitFor asks until the server gives this answer.
func waitFor(t testing.TB, url, want, question string) {
	t.Helper()
	var said string
	var err error
	wait, longest := 5*time.Millisecond, 200*time.Millisecond // each question is a process
	for late := time.Now().Add(patience); time.Now().Before(late); wait = min(2*wait, longest) {
		said, err = psql(url, question)
		if err == nil && said == want {
			return
		}
		time.Sleep(wait)
	}
	t.Fatalf("%s: %q, not %q, after %v (%v)", question, said, want, patience, err)
}

// psqlCommand is psql without the settings of whoever runs the tests. It says no, rather than to ask for a
// password.
func psqlCommand(ctx context.Context, url string) (*exec.Cmd, error) {
	bin, err := programs(debian)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "psql"), "-X", "-q", "-A", "-t", "-w",
		"-v", "ON_ERROR_STOP=1", "-d", url)
	cmd.Env = environment()
	return cmd, nil
}
