package tools

import (
	"context"
	"errors"
	"strings"
	"time"

	"x402-wallet/budget/schedule"
	"x402-wallet/history/subscriptions"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/weburl"
)

// What an agent proposes is a row that the owner reads, and nothing more: a subscription is made of it by the
// owner's command alone, which takes the passphrase. No dialog at the agent's client decides on it.

const proposeDescription = `Propose to buy url regularly; a person accepts it, or not. ` +
	`What it buys is x402://subscriptions/{name}/content.`

// proposeIn is what x402_propose_subscription takes.
type proposeIn struct {
	URL       string `json:"url"`
	Every     string `json:"every" jsonschema:"like 12h or 1d"`
	MaxAmount string `json:"maxAmount" jsonschema:"each time"`
	Until     string `json:"until" jsonschema:"like 2027-01-31"`
	Reason    string `json:"reason"`
}

// proposeOut says what became of a proposal.
type proposeOut struct {
	ProposalID string    `json:"proposalId"`
	Expires    string    `json:"expires"` // it is forgotten then
	Next       x402.Next `json:"next"`
}

// maxReason bounds what a person is given to read, in bytes.
const maxReason = 500

func (w *Wallet) propose(ctx context.Context, in proposeIn) (out proposeOut, err error) {
	in.URL = weburl.Fold(in.URL)
	p, err := in.proposal(time.Now())
	if err != nil {
		return out, err
	}
	q, err := PayIn{URL: in.URL}.request(w)
	if err == nil {
		err = w.Engine.MayAsk(ctx, q.Request)
	}
	if err != nil {
		return out, err
	}
	p.Agent, p.Host = pay.AgentFrom(ctx), pay.HostOf(in.URL)
	p, err = subscriptions.Propose(ctx, w.Store, w.Alerts, p)
	if errors.Is(err, subscriptions.ErrManyProposals) {
		return out, x402.Errorf(x402.RateLimited, "as many proposals wait for the owner as may").
			WithHint("the owner decides on those first: x402-wallet subscriptions").
			WithCommand(x402.Command("subscriptions"),
				"Several subscriptions that I proposed wait for you: please accept or decline them.")
	}
	if err != nil {
		return out, withCode(x402.LedgerUnavailable, "the proposal could not be written down", err)
	}
	command := x402.Command("subscriptions", "accept", p.ID)
	return proposeOut{ProposalID: p.ID, Expires: stamp(p.Expires), Next: x402.Next{Do: x402.AskPerson,
		Command: command, Say: "I would like " + x402.Brief(p.URL) + " to be bought every " + p.Every +
			" until " + p.Until.Format(time.DateOnly) + ", for up to " + p.Max.Price() +
			" each time: please look at it, and accept it if you want that."}}, nil
}

// proposal reads the arguments; what is wrong with them is INVALID_ARGUMENT.
func (in proposeIn) proposal(now time.Time) (p subscriptions.Proposal, err error) {
	for name, text := range map[string]string{"url": in.URL, "reason": in.Reason} {
		if strings.TrimSpace(text) == "" {
			return p, missing(name)
		}
	}
	if !weburl.Is(in.URL) || len(in.URL) > maxProposedURL {
		return p, invalid("url must be an https URL of at most %d bytes", maxProposedURL)
	}
	if len(in.Reason) > maxReason {
		return p, invalid("reason is %d bytes long, at most %d pass", len(in.Reason), maxReason)
	}
	every, err := schedule.ParseEvery(in.Every)
	if err != nil {
		return p, invalid("every: %v", err)
	}
	until, err := schedule.ParseMoment(in.Until)
	if err != nil {
		return p, invalid("until: %v", err)
	}
	if !until.After(now) || until.After(now.AddDate(maxProposedYears, 0, 0)) {
		return p, invalid("until must be ahead, and within %d years", maxProposedYears)
	}
	most, isDollars := strings.CutPrefix(in.MaxAmount, "$")
	price, err := money.ParseDollars(most)
	if err != nil || price == 0 || (!isDollars && !strings.Contains(most, ".")) {
		return p, invalid("maxAmount must be dollars like \"$0.05\"")
	}
	return subscriptions.Proposal{URL: in.URL, Every: schedule.EveryText(every), Max: price, Until: until,
		Reason: in.Reason}, nil
}

// maxProposedURL bounds a URL, in bytes, and maxProposedYears how far ahead a proposal may end.
const maxProposedURL, maxProposedYears = 2048, 5
