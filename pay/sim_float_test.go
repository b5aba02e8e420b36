//go:build !race

package pay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"time"

	"x402-wallet/history"
	"x402-wallet/scheme/allowance"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// owned is a world in which most of the money is in an owner's account, of which the agent may take what is
// approved: of balance, own is the agent's.
type owned struct {
	floats        bool
	own, approved uint64
	nonce         int // of the agent's account: how many of its transactions are in a block
	transfers     []*transfer
	past          []moment
}

// moment is how things stood from some time on.
type moment struct {
	at                    time.Time
	own, owners, approved uint64
	nonce                 int
}

// transfer is one signed pull.
type transfer struct {
	hash, row    string
	nonce        int
	amount       uint64
	made         time.Time // by the wallet's clock
	sent, failed bool
	mined        time.Time // zero: not in a block
}

// simFloat is what the owner has taken at a time.
const simFloat = 12

func (s *sim) drawOwned() {
	s.floats = s.chance(40)
	if !s.floats {
		return
	}
	s.own = []uint64{0, 0, 7}[s.rng.IntN(3)]
	s.approved = []uint64{15, 40, 1000}[s.rng.IntN(3)]
	s.mark()
}

// mark notes how things stand now.
func (s *sim) mark() {
	if s.floats {
		s.past = append(s.past, moment{at: s.now(), own: s.own, owners: s.balance - s.own,
			approved: s.approved, nonce: s.nonce})
	}
}

// seen is how things stood as the node has them.
func (s *sim) seen() moment {
	view := s.now().Add(-s.node.lag)
	was := s.past[0]
	for _, m := range s.past {
		if !m.at.After(view) {
			was = m
		}
	}
	return was
}

// ownedFunds is what the chain lets the agent spend where an owner lets it take from their account.
func (s *sim) ownedFunds(readAt time.Time) x402.Funds {
	m := s.seen()
	a := x402.OwnerAllowance{Network: testNetwork, Owner: s.host(8), Agent: s.host(9), Asset: testUSDC,
		Approved: money.NewAmount(m.approved), Balance: money.NewAmount(m.owners),
		Float: money.NewAmount(m.own)}
	free, _ := a.Float.Add(a.Pullable())
	return x402.Funds{Source: s.host(9), Balance: a.Float, Free: free, ReadAt: readAt, Allowance: &a}
}

// approve is the owner's changing what may be taken.
func (s *sim) approve() {
	s.approved = []uint64{0, 15, 40}[s.rng.IntN(3)]
	s.mix.exact = false
	s.say("the owner lets %d be taken", s.approved)
	s.mark()
}

// mine puts what was sent into a block, in the order of its nonces.
func (s *sim) mine() {
	sort.SliceStable(s.transfers, func(a, b int) bool { return s.transfers[a].nonce < s.transfers[b].nonce })
	for _, t := range s.transfers {
		if !t.sent || !t.mined.IsZero() || t.nonce != s.nonce {
			continue
		}
		t.mined = s.now()
		s.nonce++
		if t.amount > s.approved || t.amount > s.balance-s.own {
			t.failed = true
		} else {
			s.own, s.approved = s.own+t.amount, s.approved-t.amount
		}
		s.say("      %s is in a block, failed %v: the agent has %d", t.hash, t.failed, s.own)
		s.mark()
	}
}

// bringAll has what was signed and never left come to the chain at the end, as the next payment that needs a
// float would.
func (s *sim) bringAll() {
	for _, t := range s.transfers {
		p, err := s.eye.Payment(context.Background(), t.row)
		t.sent = t.sent || (err == nil && p.Payload != nil && p.State.Unfinished())
	}
	s.mine()
}

func (s *sim) waiting() bool {
	for _, t := range s.transfers {
		if t.sent && t.mined.IsZero() && t.nonce == s.nonce {
			return true
		}
	}
	return false
}

func (s *sim) transfer(hash string) *transfer {
	for _, t := range s.transfers {
		if t.hash == hash {
			return t
		}
	}
	return nil
}

// checkFloat is I1 for the agent's account: what is signed and may still be settled is there.
func (s *sim) checkFloat() {
	if !s.floats || !s.mix.exact {
		return
	}
	var open uint64
	for _, g := range s.sigs {
		if g.seen && !g.settled && s.now().Before(g.validBefore) {
			open += g.amount
		}
	}
	if open > s.own {
		s.fail("I1: %d left signed, and the agent has %d", open, s.own)
	}
}

// releasedFloat is I4 for a float.
func (s *sim) releasedFloat(id, why string) {
	for _, t := range s.transfers {
		moved := !t.mined.IsZero() && !t.failed
		may := t.sent && t.mined.IsZero() && t.nonce >= s.nonce
		if t.row == id && (moved || may) {
			s.fail("I4: the hold of the float %s is gone (%s), and it has moved or may", t.hash, why)
		}
	}
}

// compareFloats is I4 and I6 for floats, at the end.
func (s *sim) compareFloats() {
	for _, t := range s.transfers {
		if t.row == "" || t.mined.IsZero() { // nobody brings to the chain what no payment needs
			continue
		}
		p, err := s.eye.Payment(context.Background(), t.row)
		want := history.Settled
		if t.failed {
			want = history.Failed
		}
		if err != nil || p.State != want || (want == history.Settled && p.Proof != history.Chain) {
			s.fail("I6: the float %s is %s %s: %v", t.hash, p.State, p.Proof, err)
		}
	}
}

// simFloats is a process's way to the owner's account.
type simFloats struct {
	allowance.Texts
	s *sim
	p *process
}

func (f *simFloats) AllowanceOn(string) *x402.AllowanceRule {
	if !f.s.floats {
		return nil
	}
	return &x402.AllowanceRule{Owner: f.s.host(8), Float: simFloat}
}

func (f *simFloats) DraftPull(ctx context.Context, _ x402.AssetInfo, amount money.Amount) (x402.Pull, error) {
	s := f.s
	drawn := s.at(ctx, f.p, "DraftPull", s.mix.funds...)
	m := s.seen()
	wanted, _ := amount.Uint64()
	switch {
	case drawn == "no answer" || s.node.down || ctx.Err() != nil:
		return x402.Pull{}, x402.Errorf(x402.RPCError, "the node is down")
	case s.waiting():
		return x402.Pull{}, x402.Errorf(x402.CheckFailed, "another transaction is under way")
	case wanted > m.approved || wanted > m.owners:
		return x402.Pull{}, x402.Errorf(x402.DelegationExhausted, "it would fail")
	}
	return x402.Pull{Network: testNetwork, Token: testUSDC, Owner: s.host(8), Agent: s.host(9),
		Amount: amount, Nonce: uint64(m.nonce), Made: s.wallet()}, nil
}

func (f *simFloats) SignPull(ctx context.Context, _ string, p x402.Pull) (onchain.Authorization, error) {
	s := f.s
	if s.at(ctx, f.p, "SignPull", s.mix.sign...) == "locked" || ctx.Err() != nil {
		return onchain.Authorization{}, x402.Errorf(x402.WalletLocked, "locked")
	}
	t := &transfer{hash: fmt.Sprintf("0xf%d-%d", s.seed, len(s.transfers)), nonce: int(p.Nonce),
		made: p.Made}
	t.amount, _ = p.Amount.Uint64()
	s.transfers = append(s.transfers, t)
	s.say("      signed the float %s: %d with nonce %d", t.hash, t.amount, t.nonce)
	return onchain.Authorization{Payload: json.RawMessage(strconv.Quote(t.hash)),
		Evidence: x402.Evidence{Network: testNetwork, Asset: testUSDC, Payer: s.host(9), PayTo: s.host(9),
			Source: s.host(8), Amount: p.Amount, Nonce: strconv.Itoa(t.nonce), Transaction: t.hash,
			ExpiresAt: p.Made}}, nil
}

func (f *simFloats) SendPull(ctx context.Context, _ string, payload []byte) error {
	s := f.s
	drawn := s.at(ctx, f.p, "SendPull", s.mix.status...)
	var hash string
	if err := json.Unmarshal(payload, &hash); err != nil {
		s.fail("a float's bytes are not what was signed: %s", payload)
		return err
	}
	t := s.transfer(hash)
	row, err := s.eye.Payment(context.Background(), t.row)
	if err != nil || string(row.Payload) != string(payload) || row.State == history.Reserved {
		s.fail("I3: the float %s left, and its row is %s: %v", hash, row.State, err)
	}
	for _, other := range s.transfers {
		if other != t && other.sent && other.nonce == t.nonce {
			s.fail("I2: the floats %s and %s have one nonce", t.hash, other.hash)
		}
	}
	if drawn != "no answer" { // else it is lost on the way
		t.sent = true
	}
	if s.calm {
		s.mine()
	}
	if drawn != "" {
		return errors.New("no answer")
	}
	return nil
}

// Status is what the chain says of a float.
func (f *simFloats) Status(ctx context.Context, e x402.Evidence) (x402.Status, error) {
	s := f.s
	switch drawn := s.at(ctx, f.p, "Status of a float", s.mix.status...); {
	case drawn == "nonsense with an error":
		return x402.Status{State: x402.Expired}, errors.New("nonsense")
	case drawn == "no answer" || s.node.down || ctx.Err() != nil:
		return x402.Status{}, errors.New("no answer")
	}
	t, view := s.transfer(e.Transaction), s.now().Add(-s.node.lag)
	switch {
	case !t.mined.IsZero() && !t.mined.After(view) && t.failed:
		return x402.Status{State: x402.Expired}, nil
	case !t.mined.IsZero() && !t.mined.After(view):
		return x402.Status{State: x402.Settled, Transaction: t.hash}, nil
	case t.mined.IsZero() && s.seen().nonce > t.nonce:
		return x402.Status{State: x402.Expired}, nil
	}
	return x402.Status{Unused: true}, nil
}
