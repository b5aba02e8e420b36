package doctor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"x402-wallet/internal/install"
	"x402-wallet/internal/pattern"
)

// Keys of wallets lie about in plain text: in clients' settings (where blockrun's and others'
// documentation put them), in .env files, and in the files of wallets that do not encrypt. What is
// found is told by place and name; what it says is looked at and never kept.

const mostLooked = 32 << 20

// keyName is a name under which a key is kept.
var keyName = pattern.Lazy(
	`(?i)(priv|secret|mnemonic|seed|passphrase|wallet.?key|signer|evm.?key|svm.?key|solana.?key|account.?key|(^|[-_.])(key|pk|sk)$)`)

// What keys look like: 32 bytes in hex, 64 bytes in base58, words.
var (
	hexKey    = pattern.Lazy(`^(0x)?[0-9a-fA-F]{64}$`)
	base58Key = pattern.Lazy(`^[1-9A-HJ-NP-Za-km-z]{86,88}$`)
	word      = pattern.Lazy(`^[a-z]{3,8}$`)
)

// passphrases are variables that open a wallet whatever they say.
var passphrases = []string{"X402_WALLET_PASSPHRASE", "WAFERMAP_PASSWORD", "AGENT_PASSPHRASE"}

// kindOf says what a value of a name is; "" when it is nothing to worry about.
func kindOf(name, value string) string {
	value = strings.TrimSpace(value)
	switch {
	case value == "" || strings.HasPrefix(value, "$") || strings.HasPrefix(value, "<"):
		return ""
	case slices.Contains(passphrases, name):
		return "a passphrase"
	case isKeypair(value):
		return "a Solana key"
	case !keyName().MatchString(name):
		return ""
	case hexKey().MatchString(value):
		return "a private key"
	case base58Key().MatchString(value):
		return "a Solana key"
	case isPhrase(value):
		return "a seed phrase"
	}
	return ""
}

func isPhrase(value string) bool {
	words := strings.Fields(value)
	isOther := func(w string) bool { return !word().MatchString(w) }
	return slices.Contains([]int{12, 15, 18, 21, 24}, len(words)) && !slices.ContainsFunc(words, isOther)
}

// isKeypair is the Solana command line's form: 64 numbers.
func isKeypair(value string) bool {
	var list []uint16
	if !strings.HasPrefix(value, "[") || json.Unmarshal([]byte(value), &list) != nil || len(list) != 64 {
		return false
	}
	return !slices.ContainsFunc(list, func(n uint16) bool { return n > 255 })
}

// leak is a key that lies in plain text.
type leak struct{ file, name, kind string }

func (o Options) keysAbout(ctx context.Context) (list findings) {
	var leaks []leak
	looked := 0
	for _, path := range o.places() {
		text := readPlain(path)
		if text == nil || ctx.Err() != nil {
			continue
		}
		looked++
		leaks = append(leaks, look(path, text)...)
	}
	for _, l := range leaks {
		status, where := fail, l.file
		if l.file == o.solanaCLI() { // which keeps it so, for its owner to delegate with
			status = warn
		}
		if l.name != "" {
			where += " (" + l.name + ")"
		}
		list.add(status, o.remedy(l), "%s is in plain text in %s", l.kind, where)
	}
	if ctx.Err() != nil {
		list.add(warn, "run this again", "not all files could be checked in time")
	}
	return list.or("none in clients' settings, .env files here, or other wallets' files (%d files checked)",
		looked)
}

// remedy offers the import; it is refused where there is a wallet already.
func (o Options) remedy(l leak) string {
	switch {
	case l.kind == "a passphrase":
		return "put it into a file that only you can read and name that one " +
			"(X402_WALLET_PASSPHRASE_FILE), take it out there, then x402-wallet passphrase"
	case l.file == o.solanaCLI():
		return "an agent with a shell can read it: keep it elsewhere (x402-wallet delegation approve " +
			"--unsigned signs there), and little on it here"
	}
	flag := "--import-key-file FILE, with the key alone in FILE, mode 0600"
	switch {
	case l.name == "" && l.kind == "a Solana key":
		flag = "--import-solana " + shell(l.file)
	case l.name == "":
		flag = "--import-key-file " + shell(l.file)
	case l.kind == "a seed phrase":
		flag = "--import-phrase, and type it there"
	}
	if _, err := os.Stat(filepath.Join(o.Home, "keystore.json")); err == nil {
		return "move its money to x402-wallet address, then delete it; or import it into another home: " +
			"X402_WALLET_HOME=DIR x402-wallet init " + flag
	}
	return "x402-wallet init " + flag +
		"; then delete it there. Who ever shared or backed up that file: move the money instead"
}

// solanaCLI is where the Solana command line keeps its key.
func (o Options) solanaCLI() string {
	return filepath.Join(o.System.Home, ".config", "solana", "id.json")
}

func (o Options) places() (list []string) {
	s := o.System
	home := func(parts ...string) string { return filepath.Join(append([]string{s.Home}, parts...)...) }
	for _, c := range install.Clients(s) {
		backups, _ := filepath.Glob(globSafe(c.File) + ".before-x402-wallet-*") // the pattern is well formed
		list = append(append(list, c.File), backups...)
	}
	list = append(list, home(".claude", "settings.json"), home(".claude", "settings.local.json"),
		home(".codeium", "mcp_config.json"), home(".mcp.json"))
	list = append(list, // other wallets, which keep their keys as they are
		home(".agentcash", "wallet.json"), home(".agentcash", "solana-wallet.json"),
		home(".x402scan-mcp", "wallet.json"), home(".mcpc", "wallets.json"),
		o.solanaCLI(), home(".blockrun", ".session"), home(".blockrun", "wallet.json"),
		home(".x402", "wallet.json"), home(".purl", "config.toml"))
	if o.Keypair != "" {
		list = append(list, o.Keypair)
	}
	dirs := []string{s.Home}
	for dir := o.Dir; dir != "" && len(dirs) < 12; dir = filepath.Dir(dir) {
		// a project lies a few directories deep
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		if filepath.Dir(dir) == dir {
			break
		}
	}
	for _, dir := range dirs {
		for _, name := range []string{".env", ".env.local", ".env.development", ".env.production",
			".env.test", ".mcp.json",
			filepath.Join(".cursor", "mcp.json"), filepath.Join(".vscode", "mcp.json"),
			filepath.Join(".gemini", "settings.json"), filepath.Join(".codex", "config.toml")} {
			list = append(list, filepath.Join(dir, name))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func globSafe(path string) string {
	return regexp.MustCompile(`[*?\[\]]`).ReplaceAllString(path, "[$0]")
}

// readPlain is a file's text; nil for what is no regular file, is not there or is not ours to read.
func readPlain(path string) []byte {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > mostLooked {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostLooked))
	if err != nil {
		return nil
	}
	return text
}

// look finds keys in a file: in JSON and TOML under their names, elsewhere in lines NAME=VALUE, and
// where the file is nothing else.
func look(path string, text []byte) (leaks []leak) {
	switch whole := strings.TrimSpace(string(text)); {
	case isKeypair(whole) || base58Key().MatchString(whole):
		return []leak{{file: path, kind: "a Solana key"}}
	case hexKey().MatchString(whole):
		return []leak{{file: path, kind: "a private key"}}
	}
	add := func(name, kind string) {
		if l := (leak{file: path, name: name, kind: kind}); !slices.Contains(leaks, l) {
			leaks = append(leaks, l)
		}
	}
	if values, err := install.Decode(filepath.Ext(path), text); err == nil {
		walk("", "", values, add)
		return leaks
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "export "), "=")
		name = strings.TrimSpace(name)
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		value, _, _ = strings.Cut(strings.TrimSpace(value), " #")
		if kind := kindOf(name, strings.Trim(strings.TrimSpace(value), `"'`)); kind != "" {
			add(name, kind)
		}
	}
	return leaks
}

// walk looks at every text in a tree, under the name that it stands by: its key, or the flag before
// it in a list of arguments.
func walk(path, name string, value any, add func(name, kind string)) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			walk(join(path, key), key, v[key], add)
		}
	case []any:
		if text, err := json.Marshal(v); err == nil && isKeypair(string(text)) {
			add(path, "a Solana key")
			return
		}
		for i, item := range v {
			before := name
			if i > 0 {
				if flag, ok := v[i-1].(string); ok && strings.HasPrefix(flag, "-") {
					before = strings.TrimLeft(flag, "-")
				}
			}
			walk(join(path, strconv.Itoa(i)), before, item, add)
		}
	case string:
		kind := kindOf(name, v)
		if flag, rest, ok := strings.Cut(v, "="); kind == "" && ok { // --private-key=0x…
			kind = kindOf(strings.TrimLeft(flag, "-"), rest)
		}
		if kind != "" {
			add(path, kind)
		}
	}
}

// join makes a place in a file; names in it are the file's own, and short.
func join(path, key string) string {
	if len(key) > 40 || hexKey().MatchString(key) || base58Key().MatchString(key) {
		key = fmt.Sprintf("(%d characters)", len(key))
	}
	if path == "" {
		return key
	}
	return path + "." + key
}
