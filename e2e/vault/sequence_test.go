package vault

import (
	"crypto/ecdsa"
	"fmt"
	"math/big"
	"math/rand/v2"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// step is one operation in a block of its own, and what the model says of it and of the vault after it.
type step struct {
	what  string
	at    uint64
	call  Call
	ok    bool
	views []view
	// whether the agent has spent, by what was taken up to here, no more than the owner promised it
	promise bool
}

type view struct {
	what       string
	data, want []byte
}

// world is a sequence of operations that is being made up: a vault that nobody has used, its owner,
// agents and others.
type world struct {
	*rand.Rand
	chain                        *Chain
	model                        *model
	owner, vault, payee, visitor common.Address
	keys                         []*ecdsa.PrivateKey // the last is never an agent's
	written                      []written
	steps                        []step
	paid, refused                int
}

type written struct {
	cheque Cheque
	signer common.Address
	bytes  []byte
}

// makeUp makes up n operations on a new vault of that build, in blocks after now, as seed and
// number decide.
func makeUp(chain *Chain, build Build, seed, number uint64, n int, now uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, number)), chain: chain}
	named := func(name string) *ecdsa.PrivateKey {
		key, err := crypto.ToECDSA(crypto.Keccak256(fmt.Appendf(nil, "%s %d %d", name, seed, number)))
		if err != nil {
			panic(err)
		}
		return key
	}
	w.keys = []*ecdsa.PrivateKey{named("agent"), named("another agent"), named("nobody")}
	w.owner, w.payee = addressOf(named("owner")), addressOf(named("payee"))
	w.visitor = addressOf(named("visitor"))

	early, owners := w.upTo(500_000), w.upTo(5_000_000)
	rule := w.someRule()
	var create Call
	create, w.vault = build.Create(w.visitor, w.owner, chain.Token, rule)
	w.model = &model{now: now + 1}
	w.setUp("money before there is a vault", w.visitor, Data("mint(address,uint256)", w.vault, early))
	w.setUp("the owner's money", w.visitor, Data("mint(address,uint256)", w.owner, owners))
	w.model.now++
	w.model = newModel(w.model.now, rule, early, owners)
	w.add(fmt.Sprintf("creation %v", rule), true, create)
	w.model.now++
	w.setUp("approve", w.owner, Data("approve(address,uint256)", w.vault, largest))
	for range n {
		w.letTimePass()
		w.someOperation()
	}
	return w
}

// setUp is a call of the token after which nothing is asked.
func (w *world) setUp(what string, from common.Address, data []byte) {
	call := Call{From: from, To: &w.chain.Token, Data: data}
	w.steps = append(w.steps, step{what: what, at: w.model.now, ok: true, promise: true, call: call})
	w.model.now++
}

func (w *world) add(what string, ok bool, call Call) {
	call.Gas = 3_000_000
	m := w.model
	s := step{what: what, at: m.now, call: call, ok: ok, promise: m.keepsItsPromise(), views: []view{
		{"state", Data("state()"), Words(w.owner, w.chain.Token, m.rule.Agent, m.balance, m.available(),
			m.rule.PerPayment, m.rule.MaxWindow, m.rule.PerPeriod, m.rule.Period, m.nextPeriod())},
		{"floor", Data("floor()"), Words(m.floor())},
		{"available", Data("available()"), Words(m.available())},
		{"base", Data("base()"), Words(m.base)},
		{"start", Data("start()"), Words(new(big.Int).SetUint64(m.start))},
	}}
	for range min(3, len(w.written)) {
		c := w.written[len(w.written)-1-w.IntN(min(12, len(w.written)))]
		answer := [32]byte{0xff, 0xff, 0xff, 0xff}
		if m.isValid(c.cheque, c.signer) {
			answer = [32]byte{0x16, 0x26, 0xba, 0x7e}
		}
		question := IsValid(c.cheque.Digest(w.chain.Domain, w.vault), c.bytes)
		s.views = append(s.views, view{"isValidSignature of " + describe(c.cheque), question, Words(answer)})
	}
	w.steps = append(w.steps, s)
}

func (w *world) letTimePass() {
	m := w.model
	const longest = 40 * 24 * 3600
	next := m.nextPeriod()
	soon := next.Sign() > 0 && next.Cmp(new(big.Int).SetUint64(m.now+longest)) < 0
	switch w.IntN(10) {
	case 0:
		m.now += 1 + w.Uint64N(2*3600)
	case 1, 2: // to the last second of a period, or to the first of the next
		if soon && next.Uint64()-1 > m.now {
			m.now = next.Uint64() - w.Uint64N(2)
			return
		}
		m.now++
	case 3: // some periods
		if soon {
			m.now = next.Uint64() + w.Uint64N(4)*min(m.rule.Period.Uint64(), longest)
			return
		}
		m.now++
	default:
		m.now++
	}
}

func (w *world) someOperation() {
	m := w.model
	byOwner := Call{From: w.owner, To: &w.vault}
	if w.IntN(12) == 0 {
		byOwner.From = []common.Address{w.visitor, addressOf(w.keys[0]), w.vault, w.chain.Token}[w.IntN(4)]
	}
	isOwner := byOwner.From == w.owner
	choice := w.IntN(100)
	if m.isRevoked() && w.IntN(2) == 0 {
		choice = 70 // allow
	}
	switch {
	case choice < 35:
		w.cash("pay", w.write())
	case choice < 50:
		w.write()
		w.cash("cash", w.written[w.IntN(len(w.written))])
	case choice < 60:
		value := w.near(m.owners)
		byOwner.Data = Data("deposit(uint256)", value)
		w.add(fmt.Sprint("deposit ", value), isOwner && m.deposit(value), byOwner)
	case choice < 70:
		value := w.near(m.balance)
		byOwner.Data = Data("withdraw(uint256)", value)
		w.add(fmt.Sprint("withdraw ", value), isOwner && m.withdraw(value), byOwner)
	case choice < 82:
		rule := w.someRule()
		byOwner.Data = rule.Allow()
		w.add(fmt.Sprintf("allow %v", rule), isOwner && m.allow(rule), byOwner)
	case choice < 86:
		byOwner.Data = Data("revoke()")
		if isOwner {
			m.revoke()
		}
		w.add("revoke", isOwner, byOwner)
	default:
		value := w.upTo(60_000)
		m.give(value)
		w.add(fmt.Sprint("money from elsewhere ", value), true,
			Call{From: w.visitor, To: &w.chain.Token, Data: Data("mint(address,uint256)", w.vault, value)})
	}
}

// write has a cheque signed, mostly by the agent, mostly near one of the limits.
func (w *world) write() written {
	m := w.model
	now := new(big.Int).SetUint64(m.now)
	most := m.available()
	if most.Cmp(m.rule.PerPayment) > 0 {
		most = m.rule.PerPayment
	}
	value := []*big.Int{
		w.near(m.available()), w.near(m.rule.PerPayment), w.upTo(most.Uint64()), most,
	}[w.IntN(4)]
	before := add(now, big.NewInt(60))
	switch w.IntN(12) {
	case 0, 1:
		before = add(now, m.rule.MaxWindow)
	case 2:
		before = add(add(now, m.rule.MaxWindow), big.NewInt(1))
	case 3:
		before = add(now, w.upTo(7200))
	case 4:
		before = now
	}
	c := Cheque{To: w.payee, Value: value, ValidAfter: new(big.Int), ValidBefore: inWord(before)}
	if w.IntN(15) == 0 {
		c.ValidAfter = now
	}
	for i := range c.Nonce {
		c.Nonce[i] = byte(w.Uint32())
	}
	key := w.keys[w.IntN(len(w.keys))]
	for _, k := range w.keys {
		if w.IntN(12) > 0 && addressOf(k) == m.rule.Agent {
			key = k
		}
	}
	made := written{c, addressOf(key), c.Wrap(Sign(c.Digest(w.chain.Domain, w.vault), key))}
	w.written = append(w.written, made)
	return made
}

func (w *world) cash(what string, c written) {
	ok := w.model.cash(c.cheque, c.signer)
	if ok {
		w.paid++
	} else {
		w.refused++
	}
	w.add(what+" "+describe(c.cheque), ok,
		Call{From: w.visitor, To: &w.chain.Token, Data: c.cheque.Cash(w.vault, c.bytes)})
}

func (w *world) someRule() Rule {
	pick := func(from ...int64) *big.Int {
		switch w.IntN(len(from) + 2) {
		case 0:
			return sub(largest, w.upTo(2))
		case 1:
			return new(big.Int).Lsh(big.NewInt(1), uint(w.IntN(256)))
		}
		return big.NewInt(from[w.IntN(len(from))])
	}
	rule := Rule{
		Agent:      addressOf(w.keys[w.IntN(2)]),
		PerPeriod:  pick(0, 1, 999, 10_000, 20_000, 50_000, 100_000, 100_000),
		Period:     pick(1, 60, 601, 3600, 3600, 86_400),
		PerPayment: pick(0, 1, 10_000, 30_000, 30_000, 60_000, 60_000, 60_000),
		MaxWindow:  pick(0, 60, 600, 600, 600, 3600, 3600),
	}
	if w.model != nil { // a vault begins with a rule that it takes
		switch w.IntN(12) {
		case 0:
			rule.Agent = common.Address{}
		case 1:
			rule.Period = new(big.Int)
		}
	}
	return rule
}

// near is a value at a limit, around it, or anywhere below.
func (w *world) near(limit *big.Int) *big.Int {
	switch w.IntN(6) {
	case 0:
		return limit
	case 1:
		return inWord(add(limit, big.NewInt(1)))
	case 2:
		return atLeastZero(sub(limit, big.NewInt(1)))
	case 3:
		return inWord(new(big.Int).Rsh(limit, 1))
	}
	return w.upTo(min(100_000, max(1, limit.Uint64()>>1)))
}

func (w *world) upTo(n uint64) *big.Int { return new(big.Int).SetUint64(w.Uint64N(n + 1)) }

func inWord(n *big.Int) *big.Int {
	if n.Cmp(largest) > 0 {
		return largest
	}
	return n
}

func addressOf(key *ecdsa.PrivateKey) common.Address { return crypto.PubkeyToAddress(key.PublicKey) }

func describe(c Cheque) string {
	return fmt.Sprintf("%x: %v until %v", c.Nonce[:4], c.Value, c.ValidBefore)
}
