package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// launcher is the first argument of this program where it only confines itself and executes another.
const launcher = "confined-start"

// thisProgram is what the caller of execve runs, whatever became of its file meanwhile.
const thisProgram = "/proc/self/exe"

// Versions of Landlock (its ABI) that bring what is needed here.
const (
	landlockRefer    = 2 // Linux 5.19: before it, no file could be moved to another directory
	landlockTruncate = 3 // Linux 6.2
	landlockSignal   = 6 // Linux 6.12
)

// fileAccess is what a rule about a single file may speak of; treeAccess is for directories.
const (
	fileAccess = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	treeAccess = fileAccess | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_REFER
)

// landlock is the version that the kernel has; 0: none.
func landlock() int {
	version, _, err := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0,
		unix.LANDLOCK_CREATE_RULESET_VERSION)
	if err != 0 {
		return 0
	}
	return int(version)
}

// Unsupported says why nothing can be confined on this system; "": it can.
func Unsupported() string {
	if version := landlock(); version < landlockRefer {
		return fmt.Sprintf("this kernel has no Landlock, or one too old (its version is %d, at least %d is "+
			"needed: Linux 5.19)", version, landlockRefer)
	}
	return ""
}

// Gaps says what a confined program still can do on this system that newer ones stop.
func Gaps() (list []string) {
	version := landlock()
	if version < landlockTruncate {
		list = append(list, "empty files of the wallet's home (Linux 6.2 stops it)")
	}
	if version < landlockSignal {
		list = append(list, "send signals to the wallet (Linux 6.12 stops it)")
	}
	return list
}

// whyNotConfinable says why the program cannot be confined; "": it can.
func whyNotConfinable(path string, closed []string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "" // starting it says so
	}
	info, err := os.Stat(real)
	if err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		return path + " runs as another user (setuid), which a confined program cannot"
	}
	for _, c := range withOtherNames(realPaths(closed)) {
		if within(real, c) {
			return path + " lies in what is closed to it"
		}
	}
	return ""
}

// confine makes cmd start this program, which confines itself and then becomes what cmd was.
func confine(cmd *exec.Cmd, closed []string) {
	cmd.Args = slices.Concat([]string{os.Args[0], launcher}, closed, []string{"--", cmd.Path}, cmd.Args[1:])
	cmd.Path = thisProgram
}

// realPaths are those that are there, or can be made where they are said to be: a passphrase file may
// be written when the program runs already.
func realPaths(paths []string) (list []string) {
	for _, path := range paths {
		absolute, err := filepath.Abs(path)
		if err != nil {
			continue
		}
		real, err := filepath.EvalSymlinks(absolute)
		if errors.Is(err, fs.ErrNotExist) {
			real, err = filepath.EvalSymlinks(filepath.Dir(absolute))
			real = filepath.Join(real, filepath.Base(absolute))
		}
		if err == nil {
			list = append(list, real)
		}
	}
	return list
}

// ExecConfined executes another program, confined, in place of this one, where this process was started
// for that (see confine); args are its arguments without its name, env its environment. Where it was
// not, it returns false at once; where that program cannot be executed, it says so and returns true.
func ExecConfined(args, env []string) (launched bool) {
	if len(args) == 0 || args[0] != launcher {
		return false
	}
	separator := slices.Index(args, "--")
	if separator < 0 || separator == len(args)-1 {
		return false
	}
	argv := args[separator+1:]
	makeCache(filepath.Base(argv[0]), env)
	err := restrict(args[1:separator])
	if err == nil {
		err = unix.Exec(argv[0], argv, env)
	}
	_, _ = fmt.Fprintf(os.Stderr, "x402-wallet: %s is not started: %v\n", argv[0], err)
	return true
}

// caches are where programs that fetch others keep them, in the person's home directory.
var caches = map[string]string{"npx": ".npm", "npm": ".npm", "uvx": ".cache", "uv": ".cache", "bunx": ".bun",
	"deno": ".cache"}

// makeCache makes the directory that such a program would make itself the first time, and may not
// where the wallet's home is beside it.
func makeCache(program string, env []string) {
	for _, variable := range env {
		home, isHome := strings.CutPrefix(variable, "HOME=")
		if isHome && caches[program] != "" {
			_ = os.Mkdir(filepath.Join(home, caches[program]), 0o700)
		}
	}
}

// restrict closes these files and directories to this thread, and to what it becomes and starts.
func restrict(closed []string) error {
	paths := realPaths(closed)
	isThere := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	if !slices.ContainsFunc(paths, isThere) {
		return errors.New("nothing of what is to be closed is there")
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: treeAccess, Scoped: unix.LANDLOCK_SCOPE_SIGNAL}
	version := landlock() // older kernels refuse what they do not know, but for zeros
	if version < landlockTruncate {
		attr.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version < landlockSignal {
		attr.Scoped = 0
	}
	ruleset, _, failed := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)),
		unsafe.Sizeof(attr), 0)
	if failed != 0 {
		return fmt.Errorf("landlock_create_ruleset: %w", failed)
	}
	defer func() { _ = unix.Close(int(ruleset)) }()
	for _, t := range treesOutside(withOtherNames(paths), os.ReadDir) {
		if err := allow(int(ruleset), t, attr.Handled_access_fs); err != nil {
			return err
		}
	}
	runtime.LockOSThread() // and never unlocked: what follows is for the thread that becomes the program
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if _, _, failed := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); failed != 0 {
		return fmt.Errorf("landlock_restrict_self: %w", failed)
	}
	return nil
}

// allow opens a tree. One that is gone, or cannot be reached, stays closed.
func allow(ruleset int, t tree, access uint64) error {
	flags := unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if t.isDir {
		flags |= unix.O_DIRECTORY
	} else {
		access &= fileAccess
	}
	fd, err := unix.Open(t.path, flags, 0)
	if err != nil {
		return nil //nolint:nilerr // said above
	}
	defer func() { _ = unix.Close(fd) }()
	if isLink(fd) { // it has become one
		return nil
	}
	//nolint:gosec // a descriptor is small
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, failed := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset),
		unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if failed != 0 && failed != syscall.EINVAL { // a file where a directory was
		return fmt.Errorf("landlock_add_rule: %w", failed)
	}
	return nil
}

func isLink(fd int) bool {
	var stat unix.Stat_t
	return unix.Fstat(fd, &stat) != nil || stat.Mode&unix.S_IFMT == unix.S_IFLNK
}
