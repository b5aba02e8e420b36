package tools

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/ask"
	"x402-wallet/x402"
)

// unlocking asks the person for the passphrase when a call finds the wallet locked and the client
// can open a page for its person (URL-mode elicitation): on a page of this process, so that neither
// model nor host sees what is typed. Whoever is at the client says "accept" to opening the page;
// what counts is what happens there. One page is open at a time. It outlives the call: a client
// that gives up early finds the wallet unlocked later.
type unlocking struct {
	mu   sync.Mutex
	open *unlockPage // the last one
}

// unlockPage is one page, and what came of it.
type unlockPage struct {
	id   string // the request state of the calls that wait for it
	url  string
	done chan struct{}
	err  error // set before done is closed
	stop context.CancelFunc
}

// unlockKey names our question among a result's input requests.
const unlockKey = "unlock"

// ask turns WALLET_LOCKED into a question, if the client can ask it and nobody is being asked
// already; else nil, and the error is the answer. A call that has asked before gets its error.
func (u *unlocking) ask(s *Server, request *mcp.CallToolRequest, failed *x402.Error) *mcp.CallToolResult {
	_, again := request.Params.InputResponses[unlockKey]
	if _, pages := asks(request); failed.Code != x402.WalletLocked || again || !pages {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open != nil && !u.open.over() {
		failed.Hint = "the person is being asked for the passphrase on a page of the wallet; make the " +
			"same call again when they have answered"
		return nil
	}
	page, err := newUnlockPage(s)
	if err != nil {
		logger(s.Log).Warn("ask the person to unlock the wallet", "err", err)
		return nil
	}
	u.open = page
	return &mcp.CallToolResult{RequestState: page.id,
		InputRequests: mcp.InputRequestMap{unlockKey: onPage(page.url, page.id, "The wallet is locked. Open "+
			"this page of x402-wallet on this machine and type the wallet's passphrase there; never type it "+
			"into a chat.")}}
}

func newUnlockPage(s *Server) (*unlockPage, error) {
	ctx, stop := context.WithCancel(context.Background()) // the page outlives a call that its client gives up
	url, wait, err := ask.Ask(ctx, "Unlock the wallet", []string{
		"An agent's call needs the wallet, which is locked.",
		"Unlocked, it pays what the agent asks for, within the budgets in config.toml, until it was idle " +
			"for a while.",
	}, func(passphrase []byte) (again bool, err error) { return s.unlock(ctx, passphrase) })
	if err != nil {
		stop()
		return nil, err
	}
	page := &unlockPage{id: rand.Text(), url: url, done: make(chan struct{}), stop: stop}
	go func() {
		page.err = wait()
		stop()
		close(page.done)
	}()
	return page, nil
}

// unlock unlocks the wallet that calls will use next; again: another passphrase may help.
func (s *Server) unlock(ctx context.Context, passphrase []byte) (again bool, err error) {
	w, done, err := s.Wallet(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	err = w.Keys.Unlock(ctx, passphrase)
	return x402.HasCode(err, x402.InvalidPassphrase), err
}

func (p *unlockPage) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// await waits for the person, in a call that comes back with their answer. Accepting only means
// that the page was opened.
func (u *unlocking) await(ctx context.Context, request *mcp.CallToolRequest) error {
	given, asked := request.Params.InputResponses[unlockKey].(*mcp.ElicitResult)
	if !asked {
		return nil
	}
	u.mu.Lock()
	page := u.open
	u.mu.Unlock()
	if page == nil || page.id != request.Params.RequestState {
		return nil // of a server before this one: the call itself finds out whether the wallet is locked
	}
	if given.Action != "accept" {
		page.stop()
		return x402.Errorf(x402.WalletLocked,
			"the wallet is locked, and the person did not open the page to unlock it").
			WithHint("the person runs: x402-wallet unlock")
	}
	select {
	case <-page.done:
	case <-ctx.Done():
		return x402.AsError(x402.Errorf(x402.WalletLocked,
			"the wallet is locked; its person has not answered yet"))
	}
	if page.err == nil {
		return nil
	}
	coded := x402.AsError(page.err)
	if errors.Is(page.err, ask.ErrDeclined) || errors.Is(page.err, ask.ErrExpired) ||
		errors.Is(page.err, context.Canceled) {
		coded = x402.Errorf(x402.WalletLocked, "the wallet is locked: %s", page.err.Error()).
			WithHint("the person runs: x402-wallet unlock")
	}
	return coded
}

func (u *unlocking) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open != nil {
		u.open.stop()
	}
}
