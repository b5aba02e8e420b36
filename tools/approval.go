package tools

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/budget/standing"
	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// A payment that needs a person asks the person in front of the client, if the client can ask: where the
// wallet has a page for it, on that page (approvalpage.go), else by
// form-mode elicitation, accept with the price typed or decline. Up to 2025-11-25 the server sends
// elicitation/create while the call waits; from 2026-07-28 on the call ends with the question, and the client
// makes it again with the answer. Only an accepted form whose state belongs to this very question is an
// approval.
//
// For older clients the SDK could ask by itself. It is done here because a question without an
// answer has to end as APPROVAL_REQUIRED, and not as a protocol error.

const (
	// questionTimeout is how long a question waits at a client; afterwards the command line still
	// can answer it.
	questionTimeout = 5 * time.Minute
	// atClient is who decided, in the audit chain.
	atClient = "client"
	// stateless is the first protocol in which a server cannot ask while a call waits.
	stateless = "2026-07-28"
	// questionID names the one question of a call.
	questionID = "approve"
	// typedPrice is the form's field for the price. Some hosts accept every form without a person: such a
	// form has no price in it, and approves nothing.
	typedPrice = "price"
)

// maxQuestions is how often one call may ask: the way into a server may need an approval, and then the tool.
const maxQuestions = 2

// purchase makes a call that pays, and asks the person in between where one is needed: about each
// payment by itself. about names the call; show is what the outside sees of what was bought.
func (s *Server) purchase(ctx context.Context, request *mcp.CallToolRequest, about [sha256.Size]byte,
	in purchase, show func(pay.Result) *mcp.CallToolResult) *mcp.CallToolResult {
	fees := newFees()
	return s.approving(ctx, request, about, fees, func() (*mcp.CallToolResult, error) {
		return s.buy(ctx, request, in, fees, show)
	})
}

// approving makes a call that pays by buy, which is called again after each question that was answered.
func (s *Server) approving(ctx context.Context, request *mcp.CallToolRequest, about [sha256.Size]byte,
	fees *fees, buy func() (*mcp.CallToolResult, error)) *mcp.CallToolResult {
	refused := func(err error) *mcp.CallToolResult { return failure(fees.spent(err)) }
	asked, err := s.answered(ctx, request, about) // the question that was answered last
	if err != nil {
		return refused(err)
	}
	for questions := 0; ; questions++ {
		given, err := buy()
		id := approvalIn(err)
		switch {
		case asked != "" && id != "" && id != asked && !s.wasUsed(ctx, asked):
			return refused(changed(err))
		case id == "" || id == asked || questions == maxQuestions || closedBefore(err):
			return given
		}
		question := s.question(ctx, request, id)
		if question == nil {
			return given
		}
		until, who := time.Now().Add(questionTimeout), s.inFront(ctx, request)
		if !s.dialogs.begin(who, id, until) {
			return refused(waits(err))
		}
		leadsToPage := question.URL != ""
		if isStateless(request) {
			state := s.states.seal(pending{ID: id, Call: about, Until: until, OnPage: leadsToPage})
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{questionID: question},
				RequestState: state}
		}
		if leadsToPage {
			s.waitForPage(ctx, request, id, question)
			s.dialogs.end(who, id)
			if s.isPending(ctx, id) {
				return given
			}
			asked = id
			continue
		}
		answer := elicit(ctx, request, question)
		s.dialogs.end(who, id)
		if err := s.decide(context.WithoutCancel(ctx), id, answer); err != nil {
			return refused(err)
		}
		if answer == nil {
			return given
		}
		asked = id
	}
}

// isStateless reports whether the client's protocol is one in which nothing is asked while a call waits.
func isStateless(request *mcp.CallToolRequest) bool {
	p := request.Session.InitializeParams()
	return p == nil || p.ProtocolVersion >= stateless
}

// buy makes the purchase once. Its result is what the outside sees; its error says why, if it is none.
func (s *Server) buy(ctx context.Context, request *mcp.CallToolRequest, in purchase, fees *fees,
	show func(pay.Result) *mcp.CallToolResult) (*mcp.CallToolResult, error) {
	var bought pay.Result
	began := time.Now()
	w, done, err := s.Wallet(ctx)
	if err == nil {
		defer done()
		bought, err = w.buy(ctx, in, fees)
	}
	s.counted(ctx, began, bought, err)
	if err != nil {
		s.addPage(err)
		return s.result(request, nil, err), err
	}
	given := show(bought)
	s.noteDelivery(ctx, bought)
	return given, nil
}

// elicit asks while the call waits: accept or decline, or nil where the person did neither.
func elicit(ctx context.Context, request *mcp.CallToolRequest, question *mcp.ElicitParams) *mcp.ElicitResult {
	ctx, done := context.WithTimeout(ctx, questionTimeout)
	defer done()
	answer, err := request.Session.Elicit(ctx, question)
	if err != nil || (answer.Action != "accept" && answer.Action != "decline") {
		return nil
	}
	return answer
}

// countsHere reports whether what a person answers at this client counts: not where the clients are many
// agents', who answer for themselves.
func (s *Server) countsHere(ctx context.Context) bool {
	if s.isShared {
		return false
	}
	w, done, err := s.Wallet(ctx)
	if err != nil {
		return false
	}
	defer done()
	return w.Engine.Guard.LocalApprovals(ctx)
}

// wasUsed reports whether an approval was used up by a payment that was then made: what needs
// another one is another purchase of the same call.
func (s *Server) wasUsed(ctx context.Context, id string) bool {
	w, done, err := s.Wallet(ctx)
	if err != nil {
		return false
	}
	defer done()
	list, err := w.Store.AskedTogether(ctx, id)
	return err == nil && slices.ContainsFunc(list, func(a history.Approval) bool { return a.Payment != "" })
}

// approvalIn is the approval that a refusal asks for; "" where it asks for none.
func approvalIn(err error) string {
	if !x402.HasCode(err, x402.ApprovalRequired) {
		return ""
	}
	id, _ := x402.AsError(err).Details["approvalId"].(string)
	return id
}

// asks is what the client asks its person by: forms, and pages that it opens.
func asks(request *mcp.CallToolRequest) (forms, pages bool) {
	c := request.ClientCapabilities()
	if c == nil || c.Elicitation == nil {
		return false, false
	}
	pages = c.Elicitation.URL != nil
	return c.Elicitation.Form != nil || !pages, pages // {} means forms
}

// answered takes the client's answer to the question of an earlier call, if it brings one. Accepting
// and declining are recorded; cancelling is no answer, and the call then meets the same refusal again.
func (s *Server) answered(ctx context.Context, request *mcp.CallToolRequest,
	about [sha256.Size]byte) (id string, err error) {
	_, unlocked := request.Params.InputResponses[unlockKey] // an answer to the other question
	comesBack := request.Params.RequestState != "" || len(request.Params.InputResponses) > 0
	if !comesBack || unlocked {
		return "", nil
	}
	asked, ok := s.states.open(request.Params.RequestState)
	if ok {
		s.dialogs.end(s.inFront(ctx, request), asked.ID)
	}
	if !ok || asked.Call != about || !time.Now().Before(asked.Until) {
		return "", x402.Errorf(x402.ApprovalRequired,
			"the answer does not belong to a question about this call, or came too late").
			WithHint("make the call again, without requestState and inputResponses: the person is asked " +
				"again").
			WithNext(x402.Next{Do: x402.Change, Why: "without requestState and inputResponses the person " +
				"is asked again"})
	}
	answer, _ := request.Params.InputResponses[questionID].(*mcp.ElicitResult)
	if asked.OnPage {
		s.opened(ctx, request, asked.ID, actionOf(answer))
		return asked.ID, nil
	}
	return asked.ID, s.decide(ctx, asked.ID, answer)
}

func actionOf(answer *mcp.ElicitResult) string {
	if answer == nil {
		return ""
	}
	return answer.Action
}

// decide records what a person at the client said; anything else than accept and decline is no answer.
func (s *Server) decide(ctx context.Context, id string, answer *mcp.ElicitResult) error {
	w, done, err := s.Wallet(ctx)
	if err != nil {
		return err
	}
	defer done()
	switch actionOf(answer) {
	case "accept":
		if err := w.checkTyped(ctx, id, answer); err != nil {
			return err
		}
		err = w.Engine.Accept(ctx, id, atClient)
		if errors.Is(err, history.ErrDecided) || errors.Is(err, history.ErrNotFound) {
			return x402.Errorf(x402.ApprovalRequired,
				"this answer was already used for a payment, or came too late").
				WithHint("make the call again: the person is asked again").
				WithNext(x402.Next{Do: x402.Repeat, Why: "the person is asked again"})
		}
		return err
	case "decline":
		a, err := w.Store.Decline(ctx, id, atClient)
		if err == nil && a.IsSignIn() {
			return nil // and the call pays
		}
		if err != nil && !errors.Is(err, history.ErrDecided) && !errors.Is(err, history.ErrNotFound) {
			return err
		}
		return x402.Errorf(x402.ApprovalDeclined, "the person declined this payment").
			WithHint("do without it, or talk to the person").WithDetail("approvalId", id)
	}
	err = w.Store.Unanswered(ctx, id, atClient)
	if errors.Is(err, history.ErrDecided) || errors.Is(err, history.ErrNotFound) {
		return nil
	}
	return err
}

// checkTyped refuses an accepted form in which the price was not typed. A sign-in has none.
func (w *Wallet) checkTyped(ctx context.Context, id string, answer *mcp.ElicitResult) error {
	a, err := w.Store.Asked(ctx, id)
	switch {
	case errors.Is(err, history.ErrNotFound): // Accept says so
		return nil
	case err != nil:
		return err
	case a.IsSignIn():
		return nil
	}
	typed, _ := answer.Content[typedPrice].(string)
	price, err := money.ParseDollars(strings.TrimPrefix(strings.TrimSpace(typed), "$"))
	if err == nil && price == a.Price {
		return nil
	}
	return x402.Errorf(x402.ApprovalRequired, "the form was accepted without the price %s typed in it: "+
		"nothing was approved", a.Price.Price()).
		WithDetail("approvalId", id).
		WithCommand(x402.Command("approve", id), "To approve it, type the price "+a.Price.Price()+
			" into the form, or run this.")
}

// changed is what a refusal becomes when the seller changed its terms while the person was asked:
// the approval was for the old ones.
func changed(err error) error {
	e := x402.Errorf(x402.PriceChanged, "while the person was asked the seller changed its terms; what "+
		"the person agreed to was not paid").
		WithHint("make the call again: the person is asked about the new terms").
		WithNext(x402.Next{Do: x402.Repeat, Why: "the person is asked about the new terms"})
	e.Details = x402.AsError(err).Details
	return e
}

// question is what to ask the person about an approval, and how: on the wallet's page, where there is one and
// the client opens pages, else by a form, where an answer to it counts. nil: they are not asked.
func (s *Server) question(ctx context.Context, request *mcp.CallToolRequest, id string) *mcp.ElicitParams {
	forms, pages := asks(request)
	page := s.page(id)
	byPage := pages && page != "" && !s.dialogs.tires(s.inFront(ctx, request))
	if !byPage && (!forms || !s.countsHere(ctx)) {
		return nil
	}
	lines, price, err := s.terms(ctx, id)
	switch {
	case err != nil:
		logger(s.Log).Warn("ask a person", "err", err)
		return nil
	case byPage:
		return onPage(page, rand.Text(), append(lines, "You decide on a page of the wallet, in your "+
			"browser. Opening it decides nothing.")...)
	}
	return form(price, lines...)
}

// terms are what the person reads, and the price that they type to approve it; "" where it costs nothing.
// Strangers' words are quoted and bounded; the sums are ours.
func (s *Server) terms(ctx context.Context, id string) (lines []string, price string, err error) {
	w, done, err := s.Wallet(ctx)
	if err != nil {
		return nil, "", err
	}
	defer done()
	a, err := w.Store.Asked(ctx, id)
	if err != nil {
		return nil, "", err
	}
	report, err := w.budgets(ctx)
	if err != nil {
		return nil, "", err
	}
	var left []string
	for _, line := range []struct {
		name string
		standing.Line
	}{{"session", report.Session}, {"day", report.Day}, {"month", report.Month}} {
		if line.Limit != nil {
			of := fmt.Sprintf("%s of %s for the %s", line.Remaining.Price(), line.Limit.Price(), line.name)
			left = append(left, of)
		}
	}
	because := "You are asked because " + a.Why + "."
	if a.Agent != "" {
		because = "The agent " + a.Agent + " asks for it. " + because
	}
	if a.IsSignIn() {
		return []string{fmt.Sprintf("Sign in at %s with the wallet? It costs nothing, and you are asked "+
			"once for this host.", x402.Quote(a.Host)),
			fmt.Sprintf("For: %s %s", a.Method, x402.Quote(a.URL)),
			because, "Declined, what it sells is paid for."}, "", nil
	}
	before := "Left before this payment: " + strings.Join(left, ", ") + "."
	if len(a.Together) > 0 {
		return append(paymentsOf(a), because, before), a.Price.Price(), nil
	}
	return []string{
		fmt.Sprintf("Pay %s to %s?", a.Price.Price(), x402.Quote(a.Host)),
		fmt.Sprintf("Payee: %s on %s, %s atomic units of %s", x402.Quote(a.PayTo), x402.Title(a.Network),
			a.Amount, a.Symbol),
		fmt.Sprintf("For: %s %s", a.Method, x402.Quote(a.URL)),
		because,
		before,
	}, a.Price.Price(), nil
}

// paymentsOf are the payments of a list, as a person reads them in a dialog: the sum, what each host gets,
// and each payment by itself.
func paymentsOf(all history.Approval) []string {
	lines := []string{fmt.Sprintf("Pay %s in all, for %d payments?", all.Price.Price(), len(all.Together))}
	for i, a := range all.Together {
		lines = append(lines, fmt.Sprintf("%d. %s to %s for %s %s, payee %s on %s", i+1, a.Price.Price(),
			x402.Quote(a.Host), a.Method, x402.Quote(a.URL), x402.Quote(a.PayTo), x402.Title(a.Network)))
	}
	return lines
}

// form is a question of these lines. A person who accepts it types the price, if there is one.
func form(price string, lines ...string) *mcp.ElicitParams {
	schema := map[string]any{"type": "object", "properties": map[string]any{}}
	if price != "" {
		schema["properties"] = map[string]any{typedPrice: map[string]any{"type": "string", "title": "Price",
			"description": "To approve it, type " + price}}
		schema["required"] = []string{typedPrice}
	}
	return &mcp.ElicitParams{Mode: "form", Message: strings.Join(lines, "\n"),
		RequestedSchema: json.RawMessage(sure(json.Marshal(schema)))}
}

// digest names a call by its tool and arguments.
func digest(tool string, in any) [sha256.Size]byte {
	return sha256.Sum256(append([]byte(tool+" "), sure(json.Marshal(in))...))
}

// pending is a question that a client carries while its person thinks.
type pending struct {
	ID    string            `json:"id"`
	Call  [sha256.Size]byte `json:"call"`
	Until time.Time         `json:"until"`
	// OnPage says that what the client answers decides nothing.
	OnPage bool `json:"onPage,omitempty"`
}

// states seals pending questions, because a client may bring anything back. The key lives as long
// as the process: after a restart the person is asked again. That a state is used once only is the
// ledger's doing, where the question stands.
type states struct{ aead cipher.AEAD }

func newStates() states {
	key := make([]byte, 32)
	rand.Read(key) // never fails (crypto/rand)
	return states{aead: sure(cipher.NewGCMWithRandomNonce(sure(aes.NewCipher(key))))}
}

func (s states) seal(p pending) string {
	sealed := s.aead.Seal(nil, nil, sure(json.Marshal(p)), nil) //nolint:gosec // it makes the nonce itself
	return base64.RawURLEncoding.EncodeToString(sealed)
}

func (s states) open(sealed string) (p pending, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil {
		return p, false
	}
	text, err := s.aead.Open(nil, nil, raw, nil)
	return p, err == nil && json.Unmarshal(text, &p) == nil
}
