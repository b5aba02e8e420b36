package docs

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testsExist checks that every test that a page names exists, and returns how many it names: a
// table of tests must not outlive them. `main.TestX` is one of this package.
func testsExist(t *testing.T, name string) (page string, named int) {
	t.Helper()
	text, err := os.ReadFile("../" + name)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(
		"`([a-z0-9/]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1) {
		named++
		if seen[m[0]] {
			continue
		}
		seen[m[0]] = true
		files := ":(top,glob)" + strings.TrimPrefix(m[1]+"/", "main/") + "*_test.go"
		out, _ := exec.Command("git", "grep", "--untracked", "-lE", `^func `+m[2]+`\(`, "--", files).Output()
		require.NotEmpty(t, strings.TrimSpace(string(out)), "%s names %s in %s: there is no such test", name,
			m[2], m[1])
	}
	return string(text), named
}

func TestPerformanceNamesTestsThatExist(t *testing.T) {
	_, named := testsExist(t, "docs/performance.md")
	require.Positive(t, named)
}

func TestServiceNamesTestsThatExist(t *testing.T) {
	_, named := testsExist(t, "docs/service.md")
	require.Positive(t, named)
}

func TestProofNamesTestsThatExist(t *testing.T) {
	page, named := testsExist(t, "docs/proof.md")
	require.Greater(t, named, 40)
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	for _, command := range regexp.MustCompile("`make ([a-z]+)").FindAllStringSubmatch(page, -1) {
		require.Contains(t, string(makefile), "\n"+command[1]+":", "docs/proof.md names `make %s`",
			command[1])
	}
	for row := 1; row <= 25; row++ {
		require.Regexp(t, regexp.MustCompile(`(?m)^\| `+strconv.Itoa(row)+` \|.*\.Test`), page,
			"the seed's defect %d has no test", row)
	}
}

// What the race detector does not run, the Makefile runs without it, by name: a name that is missing there is
// a test that nobody runs.
func TestTestsWithoutTheRaceDetectorAreRun(t *testing.T) {
	text, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	makefile := string(text)
	out, err := exec.Command("git", "grep", "--untracked", "-lE", `^//go:build .*!race`, "--",
		":(top,glob)**/*_test.go").Output()
	require.NoError(t, err)
	for _, file := range strings.Fields(string(out)) {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(source), -1) {
			isRun := regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(makefile)
			require.True(t, isRun, "%s: nothing runs %s", file, m[1])
		}
	}
	// and those that are skipped there are in a package of the line that runs them
	line := regexp.MustCompile(`-run '\^\(\$\(WITHOUT\)\|\$\(ALONE\)\)\$\$' .*`).FindString(makefile)
	var files []string
	for _, m := range regexp.MustCompile(` \./(\S+)`).FindAllStringSubmatch(line, -1) {
		files = append(files, ":(top,glob)"+m[1]+"/*_test.go")
	}
	require.NotEmpty(t, files)
	for _, m := range regexp.MustCompile(`(?m)^(?:WITHOUT|ALONE) := (.*)$`).FindAllStringSubmatch(makefile, -1) {
		for name := range strings.SplitSeq(m[1], "|") {
			find := append([]string{"grep", "--untracked", "-lE", `^func ` + name + `\(`, "--"}, files...)
			out, _ := exec.Command("git", find...).Output()
			require.Len(t, strings.Fields(string(out)), 1, "%s is in no package of that line", name)
		}
	}
}

// Every case of the catalogue (reference/security.md §2) stands in docs/threat-model.md once, with
// a test or with the reason why there is none; and nothing else does.
func TestEveryCaseIsInTheTable(t *testing.T) {
	page, named := testsExist(t, "docs/threat-model.md")
	require.Greater(t, named, 250)
	_, page, _ = strings.Cut(page, "\n## The 135 cases\n")
	rows := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z]+[0-9]+) \|(.*)$`).FindAllStringSubmatch(page, -1) {
		require.NotContains(t, rows, m[1], "twice")
		rows[m[1]] = m[2]
	}
	cases := 0
	for i, last := range []int{20, 18, 19, 23, 17, 16, 22} {
		t.Run(fmt.Sprint(last), func(t *testing.T) {
			for n := 1; n <= last; n++ {
				cases++
				id := fmt.Sprintf("%c%d", 'A'+i, n)
				require.Contains(t, rows, id)
				require.Regexp(t, "`[a-z0-9/]+\\.(Test|Fuzz)|not here yet", rows[id],
					"%s has neither a test nor a reason", id)
				require.Equal(t, 4, strings.Count(rows[id], "|")+1, "%s: the columns", id)
			}
		})
	}
	require.Equal(t, 135, cases)
	require.Len(t, rows, cases)
}
