package mcpconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/x402"
)

// Limits bound what is read of a server's list of one kind.
type Limits struct {
	Pages, Items int
	Bytes        int // of JSON
}

// ErrListTooLong says that a server lists more than is read.
var ErrListTooLong = errors.New("the list is too long")

// collect reads a list page by page, within the limits.
func collect[R, T any](what string, limits Limits, ask func(cursor string) (R, error),
	read func(R) (items []T, next string)) (all []T, err error) {
	cursor, size := "", 0
	for range limits.Pages {
		page, err := ask(cursor)
		if err != nil {
			return nil, err
		}
		items, next := read(page)
		for _, item := range items {
			if text, err := json.Marshal(item); err == nil {
				size += len(text)
			}
		}
		all = append(all, items...)
		switch {
		case len(all) > limits.Items || size > limits.Bytes:
			return nil, fmt.Errorf("%w: more than %d %s, or %d bytes of them", ErrListTooLong, limits.Items,
				what, limits.Bytes)
		case next == "":
			return all, nil
		}
		cursor = next
	}
	return nil, fmt.Errorf("%w: %s on more than %d pages", ErrListTooLong, what, limits.Pages)
}

// Tools lists the tools of a server; ErrListTooLong beyond the limits.
func Tools(ctx context.Context, s *mcp.ClientSession, limits Limits) ([]*mcp.Tool, error) {
	return collect("tools", limits, func(cursor string) (*mcp.ListToolsResult, error) {
		return s.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
	}, func(r *mcp.ListToolsResult) ([]*mcp.Tool, string) { return r.Tools, r.NextCursor })
}

// Resources lists the resources of a server, within the same limits.
func Resources(ctx context.Context, s *mcp.ClientSession, limits Limits) ([]*mcp.Resource, error) {
	return collect("resources", limits, func(cursor string) (*mcp.ListResourcesResult, error) {
		return s.ListResources(ctx, &mcp.ListResourcesParams{Cursor: cursor})
	}, func(r *mcp.ListResourcesResult) ([]*mcp.Resource, string) { return r.Resources, r.NextCursor })
}

// ResourceTemplates lists the resource templates of a server, within the same limits.
func ResourceTemplates(ctx context.Context, s *mcp.ClientSession,
	limits Limits) ([]*mcp.ResourceTemplate, error) {
	type result = mcp.ListResourceTemplatesResult
	return collect("resource templates", limits, func(cursor string) (*result, error) {
		return s.ListResourceTemplates(ctx, &mcp.ListResourceTemplatesParams{Cursor: cursor})
	}, func(r *result) ([]*mcp.ResourceTemplate, string) { return r.ResourceTemplates, r.NextCursor })
}

// Prompts lists the prompts of a server, within the same limits.
func Prompts(ctx context.Context, s *mcp.ClientSession, limits Limits) ([]*mcp.Prompt, error) {
	return collect("prompts", limits, func(cursor string) (*mcp.ListPromptsResult, error) {
		return s.ListPrompts(ctx, &mcp.ListPromptsParams{Cursor: cursor})
	}, func(r *mcp.ListPromptsResult) ([]*mcp.Prompt, string) { return r.Prompts, r.NextCursor })
}

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
// The SDK panics over what it cannot show, a schema that is no object for one. Such an item is left out.
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
			m.Log.Warn("left out, because it cannot be shown", "of", group, "name", x402.Quote(item.Name),
				"why", x402.Brief(fmt.Sprint(p)))
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
