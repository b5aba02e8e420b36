package child

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// tree is a file, or a directory with all beneath it.
type tree struct {
	path  string
	isDir bool
}

// treesOutside lists the trees that together are everything but closed, as list finds it now: whatever
// lies beside the directories that lead to something closed. Those directories are in none of them,
// so nothing can be made in them, nor what comes into them later be opened. Links are left out,
// because what they lead to is where it really is, open or closed. closed are real paths.
func treesOutside(closed []string, list func(dir string) ([]fs.DirEntry, error)) (open []tree) {
	var walk func(dir string)
	walk = func(dir string) {
		entries, _ := list(dir) // one that cannot be listed: what lies in it stays closed
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			leadsToClosed := slices.ContainsFunc(closed, func(c string) bool { return within(c, path) })
			switch {
			case e.Type()&fs.ModeSymlink != 0 || slices.Contains(closed, path):
			case leadsToClosed:
				walk(path)
			default:
				open = append(open, tree{path: path, isDir: e.IsDir()})
			}
		}
	}
	if !slices.Contains(closed, "/") {
		walk("/")
	}
	return open
}

func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
