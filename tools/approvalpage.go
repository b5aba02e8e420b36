package tools

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/x402"
)

// Where the wallet has a page on which its owner approves, the client opens that page for its person
// (URL-mode elicitation). What the client says decides nothing, whoever it belongs to: "accept" is that the
// page was opened. Only what the owner then decides there counts, by its seal in the ledger, and the call
// goes on when that is there.

const (
	// pagePatience is how long a call waits for the owner on the page: many clients give a call up after a
	// minute, and its answer says what to do. The question stays open, and the same call then pays.
	pagePatience = 45 * time.Second
	// lookEvery is how often the ledger is looked into meanwhile: the owner may decide in another process.
	lookEvery = 500 * time.Millisecond
	// detailPage names the page among the details of a refusal.
	detailPage = "page"
)

// onPage is a question that leads to a page of the wallet's. id is the elicitation's, for clients of before
// 2026-07-28.
func onPage(page, id string, lines ...string) *mcp.ElicitParams {
	return &mcp.ElicitParams{Mode: "url", URL: page, ElicitationID: id, Message: strings.Join(lines, "\n")}
}

// page is where the owner decides on an approval; "": nowhere.
func (s *Server) page(id string) string {
	if s.ApprovalPage == nil || id == "" {
		return ""
	}
	return s.ApprovalPage(id)
}

// addPage says in a refusal that asks for an approval where it is given, for the agent to pass on.
func (s *Server) addPage(err error) {
	if page := s.page(approvalIn(err)); page != "" {
		x402.AsError(err).WithDetail(detailPage, page)
	}
}

// inFront is who a dialog is in front of: the person at a session, or at an agent whose protocol has none.
func (s *Server) inFront(ctx context.Context, request *mcp.CallToolRequest) any {
	if agent := pay.AgentFrom(ctx); s.isShared && agent != "" && isStateless(request) {
		return agent
	}
	return request.Session
}

// waitForPage has the client open the page, and waits until its owner has decided. Where they do that in
// another way meanwhile, nobody has to answer the client any more.
func (s *Server) waitForPage(ctx context.Context, request *mcp.CallToolRequest, id string,
	question *mcp.ElicitParams) {
	asking, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer s.caught("approval")
		s.awaitDecision(asking, id)
		stop()
	})
	answer := elicit(asking, request, question)
	if asking.Err() == nil {
		s.opened(ctx, request, id, actionOf(answer))
	}
	stop()
	watching.Wait()
	if !s.isPending(ctx, id) {
		_ = request.Session.NotifyElicitationComplete(ctx,
			&mcp.ElicitationCompleteParams{ElicitationID: question.ElicitationID})
	}
}

// opened is what the client did about a page. Where it was opened, it waits for the owner.
func (s *Server) opened(ctx context.Context, request *mcp.CallToolRequest, id, action string) {
	who := s.inFront(ctx, request)
	if action != "accept" {
		s.dialogs.shut(who)
		return
	}
	s.dialogs.heeded(who)
	ctx, done := context.WithTimeout(ctx, cmp.Or(s.patience, pagePatience))
	defer done()
	s.awaitDecision(ctx, id)
}

// awaitDecision waits until an approval does not wait any more, or ctx ends.
func (s *Server) awaitDecision(ctx context.Context, id string) {
	for s.isPending(ctx, id) {
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return
		}
	}
}

// isPending reports whether an approval waits, as far as can be read.
func (s *Server) isPending(ctx context.Context, id string) bool {
	w, done, err := s.Wallet(ctx)
	if err != nil {
		return true
	}
	defer done()
	a, err := w.Store.Asked(ctx, id)
	return err != nil || (a.State == history.Pending && time.Now().Before(a.Expires))
}
