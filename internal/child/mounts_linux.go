package child

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mount is a line of /proc/self/mountinfo: root of the file system device is seen at point.
type mount struct{ device, root, point string }

// mounts reads mountinfo (proc_pid_mountinfo(5)).
func mounts(mountinfo string) (list []mount) {
	for line := range strings.Lines(mountinfo) {
		if f := strings.Fields(line); len(f) > 4 {
			list = append(list, mount{device: f[2], root: unescaped(f[3]), point: unescaped(f[4])})
		}
	}
	return list
}

// unescaped is a path in which spaces and the like are written as \040.
func unescaped(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+3 < len(path) {
			if c, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

// elsewhere are the other names that paths, or parts of them, have because their file system is mounted
// a second time: as by a bind mount, or where a container shows the machine's files. Landlock goes by
// the way on which a file was opened. paths are real.
func elsewhere(paths []string, list []mount) (others []string) {
	for _, path := range paths {
		var own mount
		for _, m := range list { // of two at one point the later one is seen
			if within(path, m.point) && len(m.point) >= len(own.point) {
				own = m
			}
		}
		inside := moved(path, own.point, own.root)
		for _, m := range list {
			switch {
			case m.device != own.device:
			case within(inside, m.root):
				others = append(others, moved(inside, m.root, m.point))
			case within(m.root, inside):
				others = append(others, m.point)
			}
		}
	}
	slices.Sort(others)
	return slices.DeleteFunc(slices.Compact(others), func(path string) bool {
		return slices.Contains(paths, path)
	})
}

// moved is path, which is from or lies in it, as it is called in to.
func moved(path, from, to string) string {
	return filepath.Join(to, strings.TrimPrefix(path, strings.TrimSuffix(from, "/")))
}

// withOtherNames adds the names that paths have by other mounts.
func withOtherNames(paths []string) []string {
	text, _ := os.ReadFile("/proc/self/mountinfo") // without it there is nothing to be found
	return append(paths, elsewhere(paths, mounts(string(text)))...)
}
