package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// Each relative link of a page leads to a file, and its anchor to a heading of that file.
func TestLinksResolve(t *testing.T) {
	pages := must.Get(filepath.Glob("../*.md"))(t)
	pages = append(pages, must.Get(filepath.Glob("*.md"))(t)...)

	link := regexp.MustCompile(`(?:\]\(|src=")([^)"\s]+)[)"]`)
	for _, page := range pages {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, anchor, hasAnchor := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}

			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			require.FileExists(t, file, "%s links to %s", page, m[1])
			if hasAnchor {
				require.Contains(t, anchors(read(t, file)), anchor, "%s links to %s", page, m[1])
			}
		}
	}
}

func anchors(page string) (list []string) {
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		heading := dropped.ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(heading, " ", "-"))
	}
	return list
}

func read(t *testing.T, file string) string { return string(must.Get(os.ReadFile(file))(t)) }
