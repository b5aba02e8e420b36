//go:build !race

package pay

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// What sellers do that are paid through channels with a deposit. The honest ones count as the reference
// server does: a voucher is taken that promises what was charged and the price, and of any other one it is
// said what was charged, with the newest voucher that was.

// honestCounts are what an honest seller does, or what happens to it.
var honestCounts = []string{"takes it in no words", "takes less", "takes less and cuts",
	"takes it and cuts", "takes it and fails", "takes it and hangs", "takes the deposit alone", "cuts",
	"fails", "hangs", "is unreachable", "redirects", "says it is pending"}

// lyingCounts are what no honest seller does.
var lyingCounts = []string{"charges more", "says another sum", "counts backwards", "counts forwards",
	"shows this one as charged", "forges a voucher", "speaks of another channel",
	"takes it without the deposit", "serves without a word"}

// hostOf is the seller of a URL.
func (s *sim) hostOf(url string) string { return s.host(urlNumber(url) % 2) }

// askingBatch asks to be paid through a channel; count is what it says of it, "" nothing.
func (s *sim) askingBatch(url string, price uint64, authorizer, count, extensions string) *seller.Answer {
	least := ""
	if s.least > 0 {
		least = `,"minDeposit":` + quoted(s.least)
	}
	if count != "" {
		count = "," + count
	}
	option := fmt.Sprintf(`{"scheme":"batch-settlement","network":%q,"amount":"%d","asset":%q,"payTo":%q,`+
		`"maxTimeoutSeconds":60,"extra":{"name":"USDC","version":"2","receiverAuthorizer":%q,`+
		`"withdrawDelay":900%s%s}}`, testNetwork, price, testUSDC, testPayee, authorizer, least, count)
	if s.besides {
		option += fmt.Sprintf(`,{"scheme":"exact","network":%q,"amount":"%d","asset":%q,"payTo":%q,`+
			`"maxTimeoutSeconds":60,"extra":{"name":"USDC","version":"2"}}`, testNetwork, price+1, testUSDC,
			testPayee)
	}
	return s.challenge(url, option, extensions)
}

// challenge is an answer that asks in the protocol's second version.
func (s *sim) challenge(url, accepts, extensions string) *seller.Answer {
	text := fmt.Sprintf(`{"x402Version":2,"resource":{"url":%q},"accepts":[%s]%s}`, url, accepts, extensions)
	a := &seller.Answer{Status: 402, FinalURL: url, Header: http.Header{
		"Payment-Required": {base64.StdEncoding.EncodeToString([]byte(text))}}}
	a.Challenge, a.ChallengeErr = wire.ReadChallenge(402, a.Header, nil)
	return a
}

// authorizer is whom a seller names for its channels.
func (s *sim) authorizer(url string) string {
	host := s.hostOf(url)
	if s.shared {
		host = "all"
	}
	return fmt.Sprintf("0xshop-%s-%d", host, s.rng.IntN(s.shops))
}

// counts is what a seller says of a channel: charged in all, now by this call where that is said, and its
// newest voucher.
func counts(id string, charged uint64, now *uint64, v *x402.ChannelVoucher) string {
	text := fmt.Sprintf(`"channelState":{"channelId":%q,"chargedCumulativeAmount":"%d"}`, id, charged)
	if now != nil {
		text += `,"chargedAmount":` + quoted(*now)
	}
	if v != nil {
		text += fmt.Sprintf(`,"voucherState":{"signedMaxClaimable":%q,"signature":%q}`, v.Ceiling, v.Signature)
	}
	return text
}

// answerBatch is what a seller does with a voucher.
//
//nolint:gocyclo // a table of what sellers do
func (s *sim) answerBatch(g *signature, url, drawn string) (*seller.Answer, error) {
	p := g.promise
	c, price := p.channel, s.prices[urlNumber(url)]
	status := func(n int, body string) *seller.Answer {
		return &seller.Answer{Status: n, Content: []byte(body), ContentType: "text/plain"}
	}
	serve := func(count string) *seller.Answer {
		s.served++
		body := fmt.Sprintf("ok %s #%d", url, s.served)
		g.good[body] = true
		a := status(200, body)
		raw := fmt.Sprintf(`{"success":true,"transaction":"","network":%q`, testNetwork)
		if count != "" {
			raw += `,"extra":{` + count + `}`
		}
		a.Settlement = &wire.Settlement{Success: true, Raw: json.RawMessage(raw + "}")}
		return a
	}
	asks := func(count string) *seller.Answer {
		return s.askingBatch(url, price, c.config.ReceiverAuthorizer, count, "")
	}
	corrects := func() *seller.Answer { return asks(counts(c.id, c.charged, nil, c.newest)) }
	shown := &x402.ChannelVoucher{Ceiling: money.NewAmount(p.ceiling), Signature: p.text}
	was := c.charged
	takes := func(less uint64) bool { // as it should
		isNext := p.price == price && p.ceiling == c.charged+price && !p.charged
		// no facilitator takes a deposit that was made
		brings := p.deposits || p.brings != nil
		isDeposited := !brings || (p.alone && g.isBrought()) || (!p.alone && s.takeDeposit(g))
		if !isNext || !isDeposited || p.ceiling > c.balance {
			return false
		}
		c.charged, c.newest, p.charged = p.ceiling-less, shown, true
		return true
	}
	some := func() uint64 { return s.rng.Uint64N(c.charged + 2*price) }
	less := uint64(0)
	switch drawn {
	case "takes less", "takes less and cuts":
		less = 1 + s.rng.Uint64N(price-1)
	case "takes the deposit alone":
		s.takeDeposit(g)
		return corrects(), nil
	case "cuts", "hangs":
		return nil, sentTo(drawn)
	case "fails":
		return status(500, "no "+url), nil
	case "redirects":
		return status(302, "elsewhere"), nil
	case "says it is pending":
		a := status(402, "no "+url)
		a.Settlement = &wire.Settlement{ErrorReason: "settlement_pending", Raw: json.RawMessage(`{}`)}
		return a, nil
	case "counts backwards":
		return asks(counts(c.id, min(some(), c.charged), nil, c.newest)), nil
	case "counts forwards":
		old := c.held[s.rng.IntN(len(c.held))].promise
		return asks(counts(c.id, old.ceiling, nil, &x402.ChannelVoucher{
			Ceiling: money.NewAmount(old.ceiling), Signature: old.text})), nil
	case "shows this one as charged":
		return asks(counts(c.id, p.ceiling-s.rng.Uint64N(2), nil, shown)), nil
	case "forges a voucher":
		more := p.ceiling + some()
		return asks(counts(c.id, more, nil, &x402.ChannelVoucher{Ceiling: money.NewAmount(more),
			Signature: p.text})), nil
	case "speaks of another channel":
		other := s.channels[s.rng.IntN(len(s.channels))].id + "0"
		return asks(counts(other, some(), nil, c.newest)), nil
	case "serves without a word":
		s.served++
		body := fmt.Sprintf("ok %s #%d", url, s.served)
		g.good[body] = true
		return status(200, body), nil
	case "charges more", "says another sum":
		s.takeDeposit(g)
		now := price
		if drawn == "charges more" {
			now = 2 * price
		}
		c.charged = max(c.charged, p.ceiling)
		g.stops = true
		return serve(counts(c.id, p.ceiling-price+2*price, &now, shown)), nil
	case "takes it without the deposit":
		return serve(counts(c.id, p.ceiling, &price, shown)), nil
	}
	if !takes(less) {
		if p.charged && s.mix.remembers {
			return serve(counts(c.id, c.charged, nil, c.newest)), nil
		}
		return corrects(), nil
	}
	s.say("      the seller has charged %d of %s", c.charged, c.id[:8])
	s.taken = append(s.taken, g)
	now := c.charged - was
	switch drawn {
	case "takes it and cuts", "takes it and hangs", "takes less and cuts":
		return nil, sentTo(drawn)
	case "takes it and fails":
		return status(500, "no "+url), nil
	case "takes it in no words":
		return serve(""), nil
	}
	return serve(counts(c.id, c.charged, &now, shown)), nil
}

// presentBatch is what becomes of a payment that is shown to such a seller.
func (t *simSeller) presentBatch(ctx context.Context, r seller.Request, with wire.Attachment) (*seller.Answer,
	error) {
	s := t.s
	drawn := s.at(ctx, t.p, "Present", s.mix.batch...)
	if ctx.Err() != nil || drawn == "is unreachable" {
		return nil, notSent(drawn)
	}
	raw, _ := base64.StdEncoding.DecodeString(with.Value)
	var answer *seller.Answer
	var err error
	var asked struct {
		Payload struct{ Refund, Ceiling, Signature string }
	}
	_ = json.Unmarshal(raw, &asked)
	switch of := asked.Payload; {
	case of.Refund != "":
		answer, err = s.answerRefund(s.channel(of.Refund), of.Ceiling, of.Signature, drawn)
	default:
		g := s.left(ctx, raw)
		if g == nil {
			return nil, sentTo("nonsense")
		}
		if g.promise == nil { // an exact payment beside
			answer, err = s.answer(g, r.URL, "serves", false)
			break
		}
		s.presented(g)
		answer, err = s.answerBatch(g, r.URL, drawn)
	}
	if strings.HasSuffix(drawn, "hangs") {
		<-ctx.Done()
	}
	s.at(ctx, t.p, "answer arrives")
	if ctx.Err() != nil {
		return nil, sentTo("too late")
	}
	if c := actorOf(ctx).call; c != nil && answer != nil && answer.Status == 200 {
		if g := s.of(c.sent); g != nil && g.stops {
			c.stops = g.promise.channel
		}
	}
	return answer, err
}

// answerRefund is what a seller does that is asked for what it did not charge.
func (s *sim) answerRefund(c *simChannel, ceiling, signature, drawn string) (*seller.Answer, error) {
	s.refundShown(c, ceiling, signature)
	a := &seller.Answer{Status: 200, Content: []byte("refunded"), ContentType: "text/plain"}
	switch {
	case strings.HasSuffix(drawn, "cuts"), strings.HasSuffix(drawn, "hangs"):
		return nil, sentTo(drawn)
	case cmp.Or(s.lying && s.chance(50), drawn == "fails"):
		return a, nil
	}
	c.claimed = max(c.claimed, min(c.charged, c.balance))
	s.giveBack(c, c.balance)
	return a, nil
}
