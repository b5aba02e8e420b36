package install

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// backupMark is between a settings file's name and the time of a copy that was made before a change.
const backupMark = ".before-x402-wallet-"

// before is the text without our entry. Where nobody but us has changed the file since, it is the file as
// it was before, to the byte: of all that could be taken away, one cannot tell from the text alone what
// was there before (an empty table, an empty line at the end, the file itself). nil: there was no file.
func (c Client) before(p *Plan, entry map[string]any) ([]byte, error) {
	copies := c.copies(p.target)
	state, ours := p.old, entry
	for _, kept := range copies { // the newest first: each one is what became the state after it
		again, err := c.write(kept.text, kept.entry, c.changes(kept.entry, ours))
		if err != nil || !bytes.Equal(again, state) {
			continue
		}
		if kept.entry == nil {
			return kept.text, nil
		}
		state, ours = kept.text, kept.entry
	}
	if made, err := c.write(nil, nil, c.changes(nil, ours)); err == nil && bytes.Equal(made, state) {
		return nil, nil
	}
	text, err := c.without(p.old)
	if err == nil && c.gated {
		text, err = disallow(text)
	}
	if err != nil || c.toml {
		return text, err
	}
	return c.withoutTable(text, copies)
}

// withoutTable takes out the table of servers too, where it is empty and came with our entry.
func (c Client) withoutTable(text []byte, copies []settingsCopy) ([]byte, error) {
	first := slices.IndexFunc(copies, func(kept settingsCopy) bool { return kept.entry == nil })
	if first < 0 || copies[first].hasTable {
		return text, nil
	}
	values, err := Decode(".json", text)
	if servers, ok := values[c.at].(map[string]any); err != nil || !ok || len(servers) > 0 {
		return text, err
	}
	return remove(text, c.at)
}

// settingsCopy is a settings file as it was before a change.
type settingsCopy struct {
	text     []byte
	entry    map[string]any
	hasTable bool // of servers
}

// copies are what is kept of a settings file, the newest first. What cannot be read is none.
func (c Client) copies(target string) (list []settingsCopy) {
	beside, err := os.ReadDir(filepath.Dir(target))
	if err != nil {
		return nil
	}
	slices.Reverse(beside) // they were in the order of their names, which end with the time
	for _, file := range beside {
		if !strings.HasPrefix(file.Name(), filepath.Base(target)+backupMark) {
			continue
		}
		text, err := readSettings(filepath.Join(filepath.Dir(target), file.Name()))
		if err != nil {
			continue
		}
		values, err := Decode(filepath.Ext(c.File), text)
		if err != nil {
			continue
		}
		entry, err := entryIn(values, c.at)
		_, hasTable := values[c.at]
		if err == nil {
			list = append(list, settingsCopy{text: text, entry: entry, hasTable: hasTable})
		}
	}
	return list
}
