package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// phases are the rows beside the 116.
var phases = []string{"1.1", "1.2", "1.3", "1.4", "1.5", "2.1", "2.2", "2.3", "2.4", "2.5", "3.1", "3.2",
	"3.3", "3.4", "4.1", "4.2", "4.3", "4.4", "4.5", "4.6"}

// Each row of the merged feature table (1 to 116) and of the core seed's phases is answered once: yes, with
// tests that exist, or no, with the reason.
func TestEveryRowIsAnswered(t *testing.T) {
	page, err := os.ReadFile("features.md")
	require.NoError(t, err)
	var wanted []string
	for n := 1; n <= 116; n++ {
		wanted = append(wanted, strconv.Itoa(n))
	}
	wanted = append(wanted, phases...)
	tests := testsOfTheRepository(t)
	named := regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`")
	var seen []string
	rows := regexp.MustCompile(`(?m)^\| ([0-9][0-9.]*) \|(.*)\|$`).FindAllStringSubmatch(string(page), -1)
	for _, m := range rows {
		id, cells := m[1], strings.Split(m[2], " | ")
		require.Len(t, cells, 3, "row %s: what, yes or no, tests or the reason", id)
		what, said, why := strings.TrimSpace(cells[0]), cells[1], strings.TrimSpace(cells[2])
		require.NotEmpty(t, what, id)
		seen = append(seen, id)
		shown := named.FindAllStringSubmatch(why, -1)
		for _, name := range shown {
			isThere := slices.Contains(tests[name[1]], name[2])
			require.True(t, isThere, "row %s names %s, which is not there", id, name[0])
		}
		switch {
		case said == "yes":
			require.NotEmpty(t, shown, "row %s has no test", id)
			require.True(t, strings.HasPrefix(why, "`"), "row %s: the tests come first", id)
		case said == "no":
			require.Greater(t, len(why), 60, "row %s does not say why not", id)
		default:
			require.Fail(t, "neither yes nor no", "row %s: %q", id, said)
		}
	}
	require.Equal(t, wanted, seen, "every row once, in order")
}

// testsOfTheRepository are the names of all test functions, by their folders.
func testsOfTheRepository(t *testing.T) map[string][]string {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(\w+ \*testing\.[TF]\) \{`)
	all, count := map[string][]string{}, 0
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{"node_modules", "testdata", ".git"}, entry.Name()):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		folder, _ := filepath.Rel("..", filepath.Dir(path))
		for _, m := range function.FindAllStringSubmatch(string(source), -1) {
			folder := filepath.ToSlash(folder)
			all[folder] = append(all[folder], m[1])
			count++
		}
		return err
	}))
	require.Greater(t, count, 2000)
	return all
}
