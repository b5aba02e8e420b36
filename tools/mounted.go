package tools

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/x402"
)

// What an agent sees of a mounted server: everything here was written by a stranger, and stands
// where a model believes what it reads.

const (
	// maxMounted is how many of a server's tools are shown. Models choose badly among more, and
	// some hosts take 128 in all; the others can be called by x402_call_tool.
	maxMounted = 64
	// maxMountedBytes bounds the definitions of one server: about 30,000 tokens, which is more than
	// anybody wants in every prompt.
	maxMountedBytes = 128 << 10
	// maxMountedName is what the APIs of models take (64) without a host's own prefix,
	// mcp__x402-wallet__.
	maxMountedName = 46
	// maxWord bounds what is a name or a line to a person: titles, messages of progress. With the "…"
	// that tells of the rest it is what x402.Quote gives a stranger.
	maxWord = 119
)

type mountedTool struct {
	name       string    // as the server calls it
	shown      *mcp.Tool // as the agent sees it
	definition string    // the same in JSON
}

// mountedTools are the tools that are shown, always the same ones of the same list: those whose
// names stay as they are come first, then the alphabet.
func (w *Wallet) mountedTools(server string, list []*mcp.Tool, log *slog.Logger) (shown []mountedTool) {
	isFolded := func(t *mcp.Tool) int {
		if mountedName(server, t.Name) == server+"__"+t.Name {
			return 0
		}
		return 1
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *mcp.Tool) int {
		return cmp.Or(cmp.Compare(isFolded(a), isFolded(b)), strings.Compare(a.Name, b.Name))
	})
	taken, size := map[string]bool{}, 0
	for _, t := range list {
		m, err := w.mountedTool(server, t)
		switch {
		case err == nil && taken[m.shown.Name]:
			err = errors.New("another one has its name")
		case err == nil && (len(shown) == maxMounted || size+len(m.definition) > maxMountedBytes):
			err = fmt.Errorf("the server shows %d tools, %d bytes already", len(shown), size)
		}
		if err != nil {
			log.Warn("a tool is not mounted; x402_call_tool can call it", "tool", x402.Quote(t.Name), "why",
				err)
			continue
		}
		taken[m.shown.Name] = true
		size += len(m.definition)
		shown = append(shown, m)
	}
	return shown
}

// mountedName is <server>__<tool>. A name that hosts would not take is folded and cut, and then
// ends in a sum of what it was: so it depends on nothing else the server lists, and never changes
// under a model's hands. It never begins with x402_: servers' names that would are not mounted
// (config), and no other begins one of ours.
func mountedName(server, tool string) string {
	name := server + "__" + tool
	folded := strings.Map(func(r rune) rune {
		isLetter := (r >= 'A' && r <= 'Z') || (r >= 'a' && r <= 'z')
		isDigit := r >= '0' && r <= '9'
		if isLetter || isDigit || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	if folded == name && len(name) <= maxMountedName {
		return name
	}
	sum := fmt.Sprintf("_%x", sha256.Sum256([]byte(name)))[:9]
	return folded[:min(len(folded), maxMountedName-len(sum))] + sum
}

// mountedTool is one tool as it is shown, or why it is not. Of its annotations nothing is left: a
// call may cost money, and what else it does is known from a stranger only, so hosts are to ask
// whenever they ask at all.
func (w *Wallet) mountedTool(server string, t *mcp.Tool) (m mountedTool, err error) {
	yes := true
	terms := "may ask for payment"
	if price := w.toldPrice(t.Meta); price != "" {
		terms = "says that a call costs " + price
	}
	input, isPartial, err := shownInput(t.InputSchema)
	if err != nil {
		return m, fmt.Errorf("input schema: %w", err)
	}
	if isPartial {
		terms += "; x402_list_tools tells more of its arguments"
	}
	m.name, m.shown = t.Name, &mcp.Tool{
		Meta: longAnswers(),
		Name: mountedName(server, t.Name),
		Description: fmt.Sprintf("[MCP server %s, paid through the wallet; %s] %s", server, terms,
			x402.Clip(visible(t.Description), maxDescription)),
		InputSchema: input, // and no output schema: clients drop answers that miss it, which were paid for
		Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &yes},
	}
	title := t.Title
	if title == "" && t.Annotations != nil {
		title = t.Annotations.Title
	}
	if title != "" {
		m.shown.Title = server + ": " + x402.Clip(visible(title), maxWord)
	}
	if strings.HasPrefix(strings.ToLower(m.shown.Name), "x402_") {
		return m, errors.New("names beginning with x402_ are the wallet's own")
	}
	text, err := json.Marshal(m.shown)
	m.definition = string(text)
	return m, err
}
