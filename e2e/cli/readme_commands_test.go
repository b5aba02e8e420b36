package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config/paywallfile"
	"x402-wallet/internal/must"
)

// Each command in the README and in its pages is one of the program's, with its flags.

// allPages are the README and every page that it leads to.
func allPages(t *testing.T) []string {
	t.Helper()
	names := []string{"README.md", "SECURITY.md", "CONTRIBUTING.md"}
	found := must.Get(filepath.Glob("../../docs/*.md"))(t)
	for _, path := range found {
		names = append(names, "docs/"+filepath.Base(path))
	}
	return names
}

func pages(t *testing.T, names ...string) string {
	t.Helper()
	var all strings.Builder
	for _, page := range names {
		text := must.Get(os.ReadFile("../../" + page))(t)
		all.Write(text)
	}
	return all.String()
}

func blocks(text, language string) (list []string) {
	for _, found := range regexp.MustCompile("(?ms)^ *```"+language+"\n(.*?)^ *```$").FindAllStringSubmatch(
		text, -1) {
		list = append(list, found[1])
	}
	return list
}

// steps are the lines that a reader of pages copies into a terminal, in their order and without comments.
func steps(t *testing.T, names ...string) (list []string) {
	for _, block := range blocks(pages(t, names...), "sh") {
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(line, " #")
			line = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(line), "\\"))
			if line != "" {
				list = append(list, line)
			}
		}
	}
	return list
}

// mentioned are all commands of ours in the pages: lines of blocks, and those within sentences.
func mentioned(t *testing.T) (list []string) {
	names := allPages(t)
	found := steps(t, names...)
	for line := range strings.Lines(pages(t, names...)) {
		if strings.HasPrefix(line, "    ") { // an indented block
			line, _, _ = strings.Cut(line, " #")
			found = append(found, strings.TrimSpace(line))
		}
		for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
			found = append(found, strings.ReplaceAll(span[1], `\|`, "|"))
		}
	}
	for _, line := range found {
		line = strings.TrimPrefix(line, "sudo ")
		if strings.HasPrefix(line, "x402-wallet ") {
			list = append(list, line)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// TestReadmeCommandsExist asks the program about each: there is such a command, it takes so many
// arguments, it has these flags.
func TestReadmeCommandsExist(t *testing.T) {
	program := must.Get(exec.LookPath("x402-wallet"))(t) // testscript's
	known := map[string]string{}
	helpOf := func(command string) (text string, ok bool) {
		text, ok = known[command]
		if !ok {
			out, err := exec.CommandContext(t.Context(), program, append([]string{"help", "--json=false"},
				strings.Fields(command)...)...).Output()
			if err == nil {
				text = string(out)
			}
			known[command] = text
		}
		return text, text != ""
	}
	all := mentioned(t)
	require.Greater(t, len(all), 50)
	for _, line := range all {
		fields := strings.Fields(strings.TrimPrefix(line, "x402-wallet "))
		flag := slices.IndexFunc(append(fields, "-"), func(f string) bool { return f[0] == '-' })
		words, flags := fields[:flag], fields[flag:]
		if words[0] == "help" {
			continue
		}
		for _, one := range alternatives(words) { // "policy seal|allow|deny" is three
			n := len(one)
			help, ok := helpOf(strings.Join(one, " "))
			for ; !ok && n > 1; help, ok = helpOf(strings.Join(one[:n], " ")) {
				n--
			}
			require.True(t, ok, "%s: there is no such command", line)
			_, usage, _ := strings.Cut(help, "\nUsage:\n")
			usage, _, _ = strings.Cut(usage, "\n")
			takes := len(regexp.MustCompile(`\b[A-Z]{2,}\b`).FindAllString(usage, -1))
			require.LessOrEqual(t, len(one)-n, takes, "%s: %s", line, usage)
			for _, f := range flags {
				if f[0] == '-' {
					require.Regexp(t, `(?m)^ .*`+regexp.QuoteMeta(f)+`\b`, help, "%s: %s", line, f)
				}
			}
		}
	}
}

// alternatives spells out words of which one may be several, with | between them.
func alternatives(words []string) (list [][]string) {
	for i, word := range words {
		if several := strings.Split(word, "|"); len(several) > 1 {
			for _, w := range several {
				list = append(list, alternatives(slices.Concat(words[:i], []string{w}, words[i+1:]))...)
			}
			return list
		}
	}
	return [][]string{words}
}

// TestReadmeShop reads the shop that docs/selling.md opens.
func TestReadmeShop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.toml")
	require.NoError(t, os.WriteFile(path, []byte(blocks(pages(t, "docs/selling.md"), "toml")[0]), 0o600))
	require.Len(t, must.Get(paywallfile.Load(path))(t).Tools, 2)
}
