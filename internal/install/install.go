// Package install writes the wallet's entry into the settings of MCP clients: it finds a client
// (Detect), says what it would change (Plan) and changes it (Apply). clients.go knows the clients, entry.go
// writes an entry, edit.go edits JSON with comments (TOML is package config's), origin.go finds the way
// back.
//
// What must stay true: what is not ours stays as it was, to the byte, and is proven so before
// anything is written; no secret gets into a client's file.
package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"x402-wallet/internal/ownfile"
	"x402-wallet/internal/pattern"
)

// mostSettings bounds a settings file: Claude Code keeps its history in its own, and it grows.
const mostSettings = 64 << 20

// harmless are the variables that an entry may hold. Everything else that the wallet reads is a
// secret or is nobody's business.
var harmless = []string{"X402_WALLET_HOME", "X402_WALLET_PASSPHRASE_FILE", "LOG_LEVEL", "LOG_FORMAT",
	"NO_COLOR",
	"CDP_API_KEY_ID", "PAYAI_API_KEY_ID"}

// secretName finds the variables of other people's making that are taken for a secret.
var secretName = pattern.Lazy(`(?i)(^|_)(KEY|SECRET|TOKEN|PASSWORD|PASSPHRASE|MNEMONIC|SEED|PRIVATE)(_|$)`)

func isSecret(name string) bool {
	return !slices.Contains(harmless, name) && secretName().MatchString(name)
}

var errSecret = errors.New("clients' files are read by other programs, backed up and pasted into forums: " +
	"no secret is written there")

// Check refuses an entry with anything in it that is or might be a secret.
func (e Entry) Check() error {
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		if !slices.Contains(harmless, name) {
			return fmt.Errorf("%s is not written into a client's settings (only %s are): %w", name,
				strings.Join(harmless, ", "), errSecret)
		}
	}
	return nil
}

// Detect says what is there of a client: it is "not found" here, its settings are "unreadable" (why
// tells), our entry is "not installed", "installed", or "differs" from e. The plan, of what is
// there and can be read, would install it.
func (c Client) Detect(e Entry) (status string, p *Plan, why error) {
	marks := c.marks
	if marks == nil {
		marks = []string{c.File[:strings.LastIndexAny(c.File, `/\`)]}
	}
	if !slices.ContainsFunc(marks, isThere) {
		return "not found", nil, nil
	}
	p, why = c.Plan(&e)
	if why != nil {
		return "unreadable", nil, why
	}
	status = map[string]string{"nothing": "installed", "change": "differs", "add": "not installed"}[p.Change]
	return status, p, nil
}

// Plan is a change that was thought through and not made.
type Plan struct {
	File    string   // as the client names it
	Change  string   // "nothing" (it is so already), "add", "change" or "remove"
	Before  string   // our entry as it stands there, without what may be a secret; "" when there is none
	After   string   // as it will
	Notes   []string // what the person should know
	Command string   // that our entry as it stands there starts
	Secrets []string // the names of variables in it that may hold one

	target string // the file itself, where File is a link
	old    []byte // what was read; nil: there was no file
	text   []byte // what will be written; nil: the file goes
}

// Plan thinks through how our entry is written, or, without one, how it is taken out. Members of an
// entry that are not ours (disabled, a list of tools) stay.
func (c Client) Plan(e *Entry) (*Plan, error) {
	if e != nil {
		if err := e.Check(); err != nil {
			return nil, err
		}
	}
	p, values, err := c.read()
	if err != nil {
		return nil, err
	}
	entry, err := entryIn(values, c.at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.File, err)
	}
	opens := false // the entry has to be let in, too
	if c.gated && e != nil {
		opens, err = c.opens(p, values)
		if err != nil {
			return nil, err
		}
	}
	p.Command, _ = entry["command"].(string)
	env, _ := entry["env"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if isSecret(name) {
			p.Secrets = append(p.Secrets, name)
		}
	}
	var wanted map[string]any // nil: none
	if e != nil {
		wanted = c.merged(entry, *e)
		for _, name := range p.Secrets {
			p.Notes = append(p.Notes, name+" is taken out of the entry: no secret belongs there. The backup "+
				"still holds it; change what it protects")
		}
	}
	p.Before, err = c.shown(entry)
	if err == nil {
		p.After, err = c.shown(wanted)
	}
	if err != nil {
		return nil, err
	}
	hand := ""
	switch {
	case reflect.DeepEqual(plainValue(entry), plainValue(wanted)) && !opens:
		p.Change = "nothing"
		return p, nil
	case e == nil:
		p.Change, hand = "remove", "; take the entry "+entryName+" out by hand"
		p.text, err = c.before(p, entry)
	default:
		p.Change = "change"
		if entry == nil {
			p.Change = "add"
		}
		p.text, err = c.write(p.old, entry, c.changes(entry, wanted))
	}
	if err == nil {
		err = c.prove(p, values, wanted)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w%s", p.File, err, hand)
	}
	return p, nil
}

// opens reports whether the client's list of allowed servers has to get our entry, and notes it.
func (c Client) opens(p *Plan, values map[string]any) (bool, error) {
	if _, excluded := gate(values); slices.Contains(excluded, any(entryName)) {
		return false, fmt.Errorf("%s: mcp.excluded names %s, so %s would not start it; take it out of there "+
			"first", p.File, entryName, c.Title)
	}
	if !isShut(values) {
		return false, nil
	}
	p.Notes = append(p.Notes, "mcp.allowed lets only some servers start: "+entryName+" is added to it")
	return true, nil
}

// read reads the client's settings. A link is followed: dotfiles are often kept elsewhere.
func (c Client) read() (*Plan, map[string]any, error) {
	p := &Plan{File: c.File, target: c.File}
	if info, err := os.Lstat(p.File); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		p.target, err = filepath.EvalSymlinks(p.File)
		if err != nil {
			return nil, nil, fmt.Errorf("%s is a link that leads nowhere: %w", p.File, err)
		}
	}
	var err error
	p.old, err = readSettings(p.target)
	if err != nil {
		return nil, nil, err
	}
	values, err := Decode(filepath.Ext(c.File), p.old)
	if err != nil {
		return nil, nil, fmt.Errorf("%s cannot be read, and is left alone: %w", p.File, err)
	}
	return p, values, nil
}

func readSettings(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostSettings+1))
	if len(text) > mostSettings {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, mostSettings)
	}
	if text == nil {
		text = []byte{}
	}
	return text, err
}

// entryIn is our entry among the servers; nil when there is none.
func entryIn(values map[string]any, at string) (map[string]any, error) {
	table, there := values[at]
	if !there || table == nil {
		return nil, nil
	}
	servers, ok := table.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is no table of servers", at)
	}
	entry, there := servers[entryName]
	if !there {
		return nil, nil
	}
	if object, ok := entry.(map[string]any); ok {
		return object, nil
	}
	return nil, fmt.Errorf("%s.%s is no table", at, entryName)
}

// merged is our entry over what stands there. Secrets that somebody wrote into it are taken out.
func (c Client) merged(entry map[string]any, e Entry) map[string]any {
	wanted := map[string]any{}
	maps.Copy(wanted, entry)
	for _, f := range c.fields(e) {
		if _, theirs := entry[f.name]; !theirs || !c.isUsual(f.name) {
			wanted[f.name] = f.value
		}
	}
	env := map[string]any{}
	old, _ := entry["env"].(map[string]any)
	for name, value := range old {
		if !isSecret(name) {
			env[name] = value
		}
	}
	for name, value := range e.Env {
		env[name] = value
	}
	wasEmpty := old != nil && len(old) == 0
	if len(env) > 0 || wasEmpty {
		wanted["env"] = env
	} else {
		delete(wanted, "env")
	}
	return wanted
}

// changes are the members that have to be written, in our order; a nil value is one to be taken
// out.
func (c Client) changes(entry, wanted map[string]any) (list []field) {
	for _, f := range c.fields(Entry{Env: map[string]string{"": ""}}) { // all there can be
		value, there := wanted[f.name]
		old, was := entry[f.name]
		isSame := was && reflect.DeepEqual(plainValue(old), plainValue(value))
		switch {
		case there && !isSame:
			list = append(list, field{name: f.name, value: value})
		case !there && was:
			list = append(list, field{name: f.name, value: nil})
		}
	}
	return list
}

// prove reads what would be written: it must be what was there, with our entry as it is wanted and
// nothing else changed.
func (c Client) prove(p *Plan, values map[string]any, wanted map[string]any) error {
	written, err := Decode(filepath.Ext(c.File), p.text)
	if err != nil {
		return fmt.Errorf("this file is written in a way that is not understood here: %w", err)
	}
	expected := map[string]any{}
	maps.Copy(expected, values)
	servers := map[string]any{}
	if old, ok := values[c.at].(map[string]any); ok {
		maps.Copy(servers, old)
	}
	delete(servers, entryName)
	if wanted != nil {
		servers[entryName] = wanted
	}
	_, stays := written[c.at]
	expected[c.at] = servers
	if len(servers) == 0 && !stays {
		// a TOML table without a key of its own goes with its last one
		delete(expected, c.at)
	}
	if c.gated {
		if wanted != nil && isShut(written) {
			return errors.New("mcp.allowed cannot be changed here")
		}
		expected, written = withoutUs(expected), withoutUs(written)
	}
	if !reflect.DeepEqual(plainValue(expected), plainValue(written)) {
		return errors.New("this file is written in a way that is not understood here")
	}
	return nil
}

// shown is an entry for people, without what may be a secret.
func (c Client) shown(entry map[string]any) (string, error) {
	if entry == nil {
		return "", nil
	}
	fields := []field{}
	for _, f := range c.fields(Entry{Env: map[string]string{"": ""}}) {
		if value, there := entry[f.name]; there {
			fields = append(fields, field{name: f.name, value: value})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(entry)) {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == name }) {
			fields = append(fields, field{name: name, value: entry[name]})
		}
	}
	for i, f := range fields {
		env, ok := f.value.(map[string]any)
		if f.name != "env" || !ok {
			continue
		}
		masked := map[string]any{}
		for name, value := range env {
			if !slices.Contains(harmless, name) {
				value = "[not shown]"
			}
			masked[name] = value
		}
		fields[i].value = masked
	}
	if c.toml {
		text, err := c.write(nil, nil, fields)
		return string(text), err
	}
	text, err := style{unit: "  ", newline: "\n"}.render(ordered(fields), "", false)
	return `"` + entryName + `": ` + string(text) + "\n", err
}

// Apply makes the change: a backup beside the file, then the file at once or not at all. It returns
// the backup's name; "" when there was nothing to keep.
func (p *Plan) Apply(now time.Time) (backup string, err error) {
	if p.Change == "nothing" {
		return "", nil
	}
	current, err := readSettings(p.target)
	if err != nil {
		return "", err
	}
	if !bytes.Equal(current, p.old) || (current == nil) != (p.old == nil) {
		return "", fmt.Errorf("%s was changed meanwhile; run this again", p.File)
	}
	mode := fs.FileMode(0o600)
	if p.old == nil {
		if err := os.MkdirAll(filepath.Dir(p.target), 0o700); err != nil {
			return "", err
		}
	} else {
		info, err := os.Stat(p.target)
		if err != nil {
			return "", err
		}
		mode = info.Mode().Perm()
		if mode&0o200 == 0 {
			// its person wants it so, or another program that writes it
			return "", fmt.Errorf("%s is read-only", p.File)
		}
		for backup = ""; backup == "" || isThere(backup); now = now.Add(time.Millisecond) {
			backup = p.target + backupMark + now.UTC().Format("20060102T150405.000Z")
		}
		if err := ownfile.Write(backup, p.old); err != nil {
			return "", err
		}
	}
	if p.text == nil {
		return backup, os.Remove(p.target)
	}
	if err := ownfile.Write(p.target, p.text); err != nil {
		return backup, err
	}
	return backup, os.Chmod(p.target, mode)
}

// Decode reads a settings file by its name's extension: TOML, else JSON with comments.
func Decode(extension string, text []byte) (map[string]any, error) {
	text = bytes.TrimPrefix(text, []byte(byteOrderMark))
	if extension == ".toml" {
		values := map[string]any{}
		err := toml.Unmarshal(text, &values)
		return values, err
	}
	return decode(text)
}
