package pgtest

import (
	"cmp"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

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
