package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// announced are the rows beside the 116.
const announced = "1.1 1.2 1.3 1.4 1.5 2.1 2.2 2.3 2.4 2.5 3.1 3.2 3.3 3.4 4.1 4.2 4.3 4.4 4.5 4.6"

// Each row is answered once, in order: yes and partly by tests that exist, partly and no with a reason.
func TestFeatures(t *testing.T) {
	var wanted, seen []string
	for n := 1; n <= 116; n++ {
		wanted = append(wanted, strconv.Itoa(n))
	}
	wanted = append(wanted, strings.Fields(announced)...)

	tests := testsOfTheRepository(t)
	for line := range strings.Lines(read(t, "features.md")) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) == 1 || strings.Trim(cells[1], " #-") == "" {
			continue
		}
		require.Len(t, cells, 7, line)
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		row, what, answer, shown, remark := cells[1], cells[2], cells[3], strings.Fields(cells[4]), cells[5]
		seen = append(seen, row)
		require.NotEmpty(t, what, row)
		require.LessOrEqual(t, len(strings.Fields(what)), 8, row)
		require.Contains(t, []string{"yes", "partly", "no"}, answer, row)
		require.Equal(t, answer == "no", len(shown) == 0, "row %s: no alone has no test", row)
		require.Equal(t, answer == "yes", remark == "", "row %s: all but yes has a reason", row)
		for _, name := range shown {
			assert.True(t, tests[strings.Trim(name, "`")], "row %s names %s, which is not there", row, name)
		}
	}
	require.Equal(t, wanted, seen)
}

// Each test that a page names as `folder.TestName` exists.
func TestNamedTestsExist(t *testing.T) {
	tests := testsOfTheRepository(t)
	named := regexp.MustCompile("`([a-z0-9/]+\\.Test\\w+)`")
	for _, page := range must.Get(filepath.Glob("*.md"))(t) {
		for _, m := range named.FindAllStringSubmatch(read(t, page), -1) {
			assert.True(t, tests[m[1]], "%s names %s, which is not there", page, m[1])
		}
	}
}

// testsOfTheRepository are all test functions, each as folder.Name.
func testsOfTheRepository(t *testing.T) map[string]bool {
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(\w+ \*testing\.T\) \{`)
	elsewhere := map[string]bool{"node_modules": true, "testdata": true, "third_party": true, ".git": true}
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && elsewhere[entry.Name()]:
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		folder := filepath.ToSlash(must.Get(filepath.Rel("..", filepath.Dir(path)))(t))
		for _, m := range function.FindAllStringSubmatch(read(t, path), -1) {
			found[folder+"."+m[1]] = true
		}
		return nil
	}))
	return found
}
