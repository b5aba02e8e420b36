package pgtest

import (
	"cmp"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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

// ErrNotInstalled says that this machine has no PostgreSQL.
var ErrNotInstalled = errors.New("this needs PostgreSQL's server programs: " +
	"apt-get install -y --no-install-recommends postgresql postgresql-contrib")

// debian is where Debian keeps the programs, off PATH, a folder for each version.
const debian = "/usr/lib/postgresql/*/bin"

// programs gives the folder of initdb and postgres: the newest in one of Debian's folders, else that on PATH.
func programs(folders string) (string, error) {
	found, err := filepath.Glob(filepath.Join(folders, "initdb"))
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		newest := slices.MaxFunc(found, func(a, b string) int { return cmp.Compare(version(a), version(b)) })
		return filepath.Dir(newest), nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", ErrNotInstalled
	}
	path, err = filepath.EvalSymlinks(path)
	return filepath.Dir(path), err
}

// version is 15 for /usr/lib/postgresql/15/bin/initdb, and 0 for what is no number.
func version(initdb string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(initdb))))
	return n
}
