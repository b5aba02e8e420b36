package tools

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/history"
	"x402-wallet/pay"
)

// stillWaiting is how often a client that wants progress hears that a payment is not over: hosts
// give up on a call that says nothing for a minute, and count again from each notification.
const stillWaiting = 5 * time.Second

// progress tells a client that gave a progress token how far its purchase is. Only a goroutine of
// its own ever writes to the client: one that does not read must not keep a signed payment from
// leaving. done ends it; no notification follows the answer.
func (s *Server) progress(ctx context.Context, request *mcp.CallToolRequest) (observed context.Context,
	done func()) {
	token := request.Params.GetProgressToken()
	if token == nil {
		return ctx, func() {}
	}
	stages := make(chan string, 2*pay.MaxMany) // a purchase has four; of more the client misses some
	end, ended := make(chan struct{}), make(chan struct{})
	last, step := "", 0.0
	notify := func() {
		step++
		err := request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token,
			Progress: step, Message: last})
		if err != nil {
			logger(s.Log).Debug("notify of progress", "err", err)
		}
	}
	go func() {
		defer close(ended)
		ticks := time.NewTicker(cmp.Or(s.still, stillWaiting))
		defer ticks.Stop()
		for {
			select {
			case last = <-stages:
				notify()
			case <-ticks.C:
				notify()
			case <-ctx.Done(): // a cancelled call has no news
				return
			case <-end:
				for len(stages) > 0 && ctx.Err() == nil {
					last = <-stages
					notify()
				}
				return
			}
		}
	}()
	say := func(text string) {
		if text == "" {
			return
		}
		select {
		case stages <- text:
		default:
		}
	}
	observed = pay.OnStage(ctx, func(stage pay.Stage, p history.Payment) {
		say(stageText(stage, p))
		if stage == pay.StageSent {
			say(s.outwaits(s.patienceFor(p)))
		}
	})
	observed = pay.OnRows(observed, func(done, all int) {
		say(fmt.Sprintf("%d of %d purchases are over", done, all))
	})
	return observed, func() {
		close(end)
		<-ended
	}
}

// patienceFor is how long the answer to a payment is waited for.
func (s *Server) patienceFor(p history.Payment) time.Duration {
	w, done := s.lazy.last()
	if w == nil {
		return 0
	}
	defer done()
	return w.Engine.Patience(p)
}

// outwaits says that an answer may take longer than the client waits for it; "" if it told nothing of the
// kind.
func (s *Server) outwaits(wait time.Duration) string {
	if s.ClientWait == 0 || wait <= s.ClientWait {
		return ""
	}
	return fmt.Sprintf("the seller's answer may take up to %s, and this client waits %s "+
		"(MCP_TOOL_TIMEOUT): if its call ends before, the very same call gives what was bought",
		wait, s.ClientWait)
}

// stageText is in our own words; nothing of the seller's is in it but the price.
func stageText(stage pay.Stage, p history.Payment) string {
	switch stage {
	case pay.StageHeld:
		return fmt.Sprintf("%s is held in the budget; signing", p.Price.Price())
	case pay.StageFloat:
		return "a float is taken from the owner's account; waiting for the chain"
	case pay.StageSent:
		return fmt.Sprintf("the signed payment of %s is on its way; waiting for its settlement",
			p.Price.Price())
	default:
		return "settled; asking the seller for what was bought"
	}
}
