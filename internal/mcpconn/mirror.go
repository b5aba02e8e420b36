package mcpconn

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// Mirror keeps what a server of ours shows equal to what others have, and changes only what is
// different: the SDK tells every client of each addition, even where nothing changed. The zero
// value is ready to use, except for Log. It is safe for concurrent use.
type Mirror struct {
	Log *slog.Logger

	mu    sync.Mutex
	shown map[string]map[string]string // group → name → definition
}

// Item is one thing to be shown.
type Item struct {
	Name       string
	Definition string // all of it, so that a change is seen
	Add        func() // shows it; replaces what had its name
}

// Replace shows these items of a group and no others. remove takes away those that are gone.
//
// The SDK panics over what it cannot show, a schema that is no object for one. Such an item is left
// out.
func (m *Mirror) Replace(group string, items []Item, remove func(name string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, after := m.shown[group], map[string]string{}
	for _, item := range items {
		old, isShown := before[item.Name]
		if (isShown && old == item.Definition) || m.add(group, item) {
			after[item.Name] = item.Definition
		}
	}
	for name := range before {
		if _, isShown := after[name]; !isShown {
			remove(name)
		}
	}
	if m.shown == nil {
		m.shown = map[string]map[string]string{}
	}
	m.shown[group] = after
	if len(after) == 0 {
		delete(m.shown, group)
	}
}

func (m *Mirror) add(group string, item Item) (isShown bool) {
	defer func() {
		if p := recover(); p != nil {
			m.Log.Warn("left out, because it cannot be shown", "of", group, "name", item.Name, "why",
				fmt.Sprint(p))
		}
	}()
	item.Add()
	return true
}

// Groups are the groups of which something is shown.
func (m *Mirror) Groups() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.shown))
}

// Names are the names that are shown of a group, in order.
func (m *Mirror) Names(group string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.shown[group]))
}
