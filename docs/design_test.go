package docs

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every file and folder that design.md names exists: the map, the walk of a payment, and the
// answers to the ten questions.
func TestDesignNamesFilesThatExist(t *testing.T) {
	page, err := os.ReadFile("design.md")
	require.NoError(t, err)
	named := regexp.MustCompile("`([a-z0-9_]+(?:/[a-z0-9_]+)*(?:/|\\.(?:go|sql|md)))`").
		FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(named), 100)
	for _, m := range named {
		_, err := os.Stat("../" + m[1])
		require.NoError(t, err, "design.md names %s", m[1])
	}
	questions := regexp.MustCompile(`(?s)## Ten questions of a newcomer\n(.*?)\n## `).FindSubmatch(page)
	require.NotNil(t, questions)
	rows := regexp.MustCompile("(?m)^\\| [^|]+\\? \\| .*`[a-z0-9/]+(?:\\.go|/)`").FindAll(questions[1], -1)
	require.Len(t, rows, 10)
}
