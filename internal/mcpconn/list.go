package mcpconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Limits bound what is read of a server's list of one kind.
type Limits struct {
	Pages, Items int
	Bytes        int // of JSON
}

// ErrListTooLong says that a server lists more than is read.
var ErrListTooLong = errors.New("the list is too long")

// collect reads a list page by page, within the limits.
func collect[T any](what string, limits Limits, page func(cursor string) (items []T, next string,
	err error)) (all []T, err error) {
	cursor, size := "", 0
	for range limits.Pages {
		items, next, err := page(cursor)
		if err != nil {
			return nil, err
		}
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
	return collect("tools", limits, func(cursor string) ([]*mcp.Tool, string, error) {
		page, err := s.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, "", err
		}
		return page.Tools, page.NextCursor, nil
	})
}

// Resources lists the resources of a server, within the same limits.
func Resources(ctx context.Context, s *mcp.ClientSession, limits Limits) ([]*mcp.Resource, error) {
	return collect("resources", limits, func(cursor string) ([]*mcp.Resource, string, error) {
		page, err := s.ListResources(ctx, &mcp.ListResourcesParams{Cursor: cursor})
		if err != nil {
			return nil, "", err
		}
		return page.Resources, page.NextCursor, nil
	})
}

// ResourceTemplates lists the resource templates of a server, within the same limits.
func ResourceTemplates(ctx context.Context, s *mcp.ClientSession, limits Limits) ([]*mcp.ResourceTemplate,
	error) {
	return collect("resource templates", limits, func(cursor string) ([]*mcp.ResourceTemplate, string,
		error) {
		page, err := s.ListResourceTemplates(ctx, &mcp.ListResourceTemplatesParams{Cursor: cursor})
		if err != nil {
			return nil, "", err
		}
		return page.ResourceTemplates, page.NextCursor, nil
	})
}

// Prompts lists the prompts of a server, within the same limits.
func Prompts(ctx context.Context, s *mcp.ClientSession, limits Limits) ([]*mcp.Prompt, error) {
	return collect("prompts", limits, func(cursor string) ([]*mcp.Prompt, string, error) {
		page, err := s.ListPrompts(ctx, &mcp.ListPromptsParams{Cursor: cursor})
		if err != nil {
			return nil, "", err
		}
		return page.Prompts, page.NextCursor, nil
	})
}
