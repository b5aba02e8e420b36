package edits

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mr-tron/base58"

	"x402-wallet/chain/evm/message"
	"x402-wallet/e2e/asks"
	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// wanted is something that is to be signed: what the message can move, and what is said of it.
type wanted struct {
	way, agent, account           string // account: farTeam, or the wallet's own
	host, method, path            string
	network, asset, payTo, source string
	amount, counts                uint64 // what it can move; what it counts as
	key, channel                  string
	ceiling, price                uint64 // of a voucher: what it promises in all; the call's price
	balance                       uint64 // at the agent's account, by the chain
	isOrdered, isSignIn, isPull   bool
	isStrange                     bool // who settles it is not known
	isOutgoing                    bool // out of the agent's account on base
	isOwners                      bool // out of a channel that an owner funds
	isApproved                    bool // the owner is asked first

	fingerprint [sha256.Size]byte
	id, unique  string // once it is signed
	row         func(*history.Payment)
	sign        func(*world, wanted, asks.Asks, history.Payment) error
}

func (x wanted) resource() string { return x.method + " " + x.host + x.path }

// place is whose payees are compared.
func (x wanted) place() string { return x.host + " " + x.network + " " + x.asset }

func (x wanted) url() string { return "https://" + x.host + x.path }

func (x wanted) String() string {
	return fmt.Sprintf("%s of %d (counts %d, ceiling %d) by %q to %s for %s %s, from %s, key %q, %s", x.way,
		x.amount, x.counts, x.ceiling, x.agent, x.payTo, x.method, x.url(), x.source, x.key, x.id)
}

// payment is the row that is reserved for it.
func (x wanted) payment() history.Payment {
	p := history.Payment{Fingerprint: x.fingerprint, Agent: x.agent, IdempotencyKey: x.key, Method: x.method,
		URL: x.url(), Target: x.url(), Host: x.host, Network: x.network, Scheme: x402.Exact, Asset: x.asset,
		Symbol: "USDC", Amount: money.NewAmount(x.amount), Price: money.Dollars(x.counts), PayTo: x.payTo,
		Source: x.source, Requirement: json.RawMessage("{}")}
	if x.row != nil {
		x.row(&p)
	}
	return p
}

// way makes something that a wallet signs in one way: a small sum, or what r gives.
type way struct {
	name string
	make func(w *world, r *rand.Rand) wanted
}

// ways are all of them.
var ways = []way{
	{"EIP-3009", func(w *world, r *rand.Rand) wanted { return w.transfer(r, x402.Exact) }},
	{"MPP on EVM", func(w *world, r *rand.Rand) wanted { return w.transfer(r, x402.MPP) }},
	{"vault", (*world).fromVault},
	{"Solana", func(w *world, r *rand.Rand) wanted { return w.onSolana(r, x402.Exact) }},
	{"MPP on Solana", func(w *world, r *rand.Rand) wanted { return w.onSolana(r, x402.MPP) }},
	{"Solana as delegate", (*world).asDelegate},
	{"Permit2", func(w *world, r *rand.Rand) wanted { return w.permit(r, x402.Permit2) }},
	{"upto", func(w *world, r *rand.Rand) wanted { return w.permit(r, x402.Upto) }},
	{"deposit", func(w *world, r *rand.Rand) wanted { return w.voucher(r, false, false, true) }},
	{"voucher", func(w *world, r *rand.Rand) wanted { return w.voucher(r, false, false, false) }},
	{"first voucher", func(w *world, r *rand.Rand) wanted { return w.voucher(r, false, true, false) }},
	{"owner's channel", func(w *world, r *rand.Rand) wanted { return w.voucher(r, true, false, false) }},
	{"owner's first voucher", func(w *world, r *rand.Rand) wanted { return w.voucher(r, true, true, false) }},
	{"allowance", (*world).pull},
	{"sign-in", func(w *world, r *rand.Rand) wanted { return w.signIn(r, base) }},
	{"sign-in on Solana", func(w *world, r *rand.Rand) wanted { return w.signIn(r, sandbox.Solana) }},
	{"subscription", (*world).ordered},
}

// pick is one of a list; the first ones come more often.
func pick[T any](r *rand.Rand, list ...T) T { return list[min(r.IntN(len(list)), r.IntN(len(list)))] }

// plain is what most ways have in common.
func (w *world) plain(r *rand.Rand) wanted {
	x := wanted{agent: pick(r, "", "ann", "bob", "eve"), method: "GET", network: base, asset: usdc.Address,
		host: pick(r, "api.example", cappedHost, "b.example", deniedHost), path: pick(r, "/x", "/y"),
		payTo: pick(r, payees[0], payees[1], payees[2])}
	x.amount = pick[uint64](r, 5_000, 1_000+r.Uint64N(9_000), 10_000+r.Uint64N(90_000), 100_001)
	x.counts = x.amount
	x.fingerprint = sha256.Sum256(fmt.Append(nil, r.Uint64()))
	if r.IntN(4) == 0 {
		x.key = pick(r, fmt.Sprint("key ", r.Uint64()), "key of the day")
	}
	x.isApproved = r.IntN(4) == 0
	return x
}

// payer has what pays for it: the account of its agent, or now and then another one.
func (w *world) payer(r *rand.Rand, x *wanted) (solana, evm string) {
	if (x.agent == "eve") != (r.IntN(20) == 0) {
		x.account = farTeam
		return w.far.Addresses()
	}
	return w.keys.Addresses()
}

func (w *world) transfer(r *rand.Rand, scheme string) wanted {
	x := w.plain(r)
	_, x.source = w.payer(r, &x)
	x.isOutgoing = x.account == ""
	x.row = func(p *history.Payment) { p.Scheme = scheme }
	x.sign = func(w *world, x wanted, a asks.Asks, p history.Payment) error {
		return must.Err(a.SignTransfer(w.t.Context(), w.authorization(x, p)))
	}
	return x
}

func (w *world) authorization(x wanted, p history.Payment) message.Transfer {
	return message.Transfer{Payment: p.ID, Asset: usdc, OfVault: x.source == ownersVault,
		Authorization: message.Authorization3009{From: x.source, To: x.payTo,
			Value: money.NewAmount(x.amount), ValidBefore: w.ticker.now().Unix() + 60,
			Nonce: sha256.Sum256([]byte(p.ID))}}
}

func (w *world) fromVault(r *rand.Rand) wanted {
	x := w.transfer(r, x402.Exact)
	x.source, x.isOutgoing = ownersVault, false
	x.account = ""
	if x.agent == "eve" {
		x.agent = ""
	}
	return x
}

func (w *world) onSolana(r *rand.Rand, scheme string) wanted {
	x := w.plain(r)
	address, _ := w.payer(r, &x)
	x.network, x.asset, x.payTo = sandbox.Solana, usdcSolana.Address, w.solana.Evidence.PayTo
	x.source = accountOf(w.t, address)
	if r.IntN(5) == 0 {
		x.payTo = base58.Encode(bytes.Repeat([]byte{7}, 32)) // whom nobody paid
	}
	x.row = func(p *history.Payment) { p.Scheme = scheme }
	x.sign = func(w *world, x wanted, a asks.Asks, p history.Payment) error {
		return must.Err(a.SignSolana(w.t.Context(), w.transaction(x, p)))
	}
	return x
}

// asDelegate takes from a token account of somebody else's, who lets the agent.
func (w *world) asDelegate(r *rand.Rand) wanted {
	x := w.onSolana(r, x402.Exact)
	x.source = base58.Encode(bytes.Repeat([]byte{9}, 32))
	return x
}

// transaction is the one that was built, with another sum, payee, source, payer and memo in its bytes.
func (w *world) transaction(x wanted, p history.Payment) asks.Transaction {
	s, e := w.solana, w.solana.Evidence
	address, _ := w.keys.Addresses()
	if x.account == farTeam {
		address, _ = w.far.Addresses()
	}
	memo := []byte(e.Memo)
	sum := sha256.Sum256([]byte(p.ID))
	copy(memo, hex.EncodeToString(sum[:]))
	amount := func(n uint64) []byte { return binary.LittleEndian.AppendUint64([]byte{12}, n) }
	destination := accountOf(w.t, x.payTo)
	for _, change := range [][2][]byte{{key(e.Source), key(x.source)}, {key(e.Payer), key(address)},
		{key(e.Destination), key(destination)}, {[]byte(e.Memo), memo}, {amount(10_000), amount(x.amount)}} {
		s.Transaction = bytes.Replace(s.Transaction, change[0], change[1], 1)
	}
	e.Source, e.Payer, e.Destination, e.PayTo, e.Memo = x.source, address, destination, x.payTo, string(memo)
	e.Amount, e.ExpiresAt = money.NewAmount(x.amount), w.ticker.now().Add(2*time.Minute)
	s.Evidence = e
	return asks.Transaction{Payment: p.ID, Solana: s}
}

func key(address string) []byte {
	bytes, _ := base58.Decode(address)
	return bytes
}

func (w *world) permit(r *rand.Rand, scheme string) wanted {
	x := w.plain(r)
	_, x.source = w.payer(r, &x)
	x.isOutgoing = x.account == ""
	x.isStrange = scheme == x402.Upto && r.IntN(4) == 0
	withApproval := r.IntN(3)
	x.row = func(p *history.Payment) { p.Scheme = scheme }
	x.sign = func(w *world, x wanted, a asks.Asks, p history.Payment) error {
		d := message.PermitDraft{Payment: p.ID, Asset: usdc, Authorization: message.Permit2Authorization{
			From: x.source, To: x.payTo, Token: usdc.Address, Amount: money.NewAmount(x.amount),
			Spender: message.ExactProxy, Deadline: w.ticker.now().Unix() + 60,
			Nonce: sha256.Sum256([]byte(p.ID))}}
		if scheme == x402.Upto {
			d.Authorization.Spender, d.Authorization.Facilitator = message.UptoProxy, settler
		}
		if x.isStrange {
			d.Authorization.Facilitator = payees[2]
		}
		switch withApproval {
		case 0:
			d.Approval = message.ApprovalOf(d.Authorization, money.NewAmount(3))
		case 1:
			d.Transaction = &message.ApprovalGas{Gas: 50_000, MaxFee: money.NewAmount(2)}
		}
		_, _, err := a.SignPermit2(w.t.Context(), d)
		return err
	}
	return x
}

// voucher is of one of the channels, with a deposit, or paid from what is there. Now and then it promises
// more than its price, also beyond what the channel's row says.
func (w *world) voucher(r *rand.Rand, isOwners, isNew, isDeposit bool) wanted {
	x := w.plain(r)
	config, id := w.config(isOwners, isNew)
	x.agent, x.account, x.path, x.payTo = pick(r, "", "ann", "bob"), "", "/call", config.Receiver
	_, x.source = w.keys.Addresses()
	x.host, x.channel, x.isOwners = channelHost, id, isOwners
	isByRow := r.IntN(2) == 0
	if isOwners {
		x.host, x.source = ownersHost, id
	}
	price := pick[uint64](r, 2_000, 1_000+r.Uint64N(3_000), 5_000+r.Uint64N(40_000))
	x.amount, x.price = price, price
	x.ceiling = max(1, w.umpire.promised[id]+pick(r, price, price, price+1, 10*price, 0))
	switch {
	case isDeposit:
		x.amount = pick(r, max(price, 20_000), price+r.Uint64N(90_000))
		x.counts, x.isOutgoing = x.amount, true
	case isOwners && x.ceiling > w.umpire.promised[id]:
		x.counts = price
	default:
		x.counts = 0
	}
	x.row = func(p *history.Payment) {
		p.Scheme = x402.BatchSettlement
		p.Requirement = json.RawMessage(fmt.Sprintf(`{"scheme":"batch-settlement","network":%q,`+
			`"amount":"%d","asset":%q,"payTo":%q}`, base, price, usdc.Address, config.Receiver))
	}
	x.sign = func(w *world, x wanted, a asks.Asks, p history.Payment) error {
		w.ceiling = x.ceiling
		row, err := w.store.Channel(w.t.Context(), id, config.PayerAuthorizer)
		if at, _ := row.Amount.Uint64(); isByRow && err == nil {
			w.ceiling = at + x.ceiling - min(x.ceiling, w.umpire.promised[id])
		}
		m := message.Channel{Payment: p.ID, Asset: usdc, Config: config, Ceiling: money.NewAmount(w.ceiling)}
		if isDeposit {
			m.Deposit = &message.Deposit{Value: money.NewAmount(x.amount),
				ValidBefore: w.ticker.now().Unix() + 60, Salt: sha256.Sum256([]byte(p.ID))}
		}
		return must.Err(a.SignChannel(w.t.Context(), m))
	}
	return x
}

// pull takes a float of the owner's.
func (w *world) pull(r *rand.Rand) wanted {
	_, evm := w.keys.Addresses()
	x := wanted{method: "transferFrom", network: base, asset: usdc.Address, payTo: evm, source: ownersAccount,
		isPull: true, balance: w.chain.balance, fingerprint: sha256.Sum256(fmt.Append(nil, r.Uint64()))}
	x.amount = pick[uint64](r, 10_000, 1_000+r.Uint64N(60_000), 100_000, 200_000)
	nonce := w.chain.landed + uint64(len(w.umpire.pulls))
	x.row = func(p *history.Payment) {
		p.Scheme, p.URL, p.Target = x402.Allowance, "allowance:"+ownersAccount, ""
	}
	x.sign = func(w *world, x wanted, a asks.Asks, p history.Payment) error {
		made := w.ticker.now().UTC().Truncate(time.Second)
		return must.Err(a.SignPull(w.t.Context(), p.ID, x402.Pull{Network: base, Token: usdc.Address,
			Owner: ownersAccount, Agent: evm, Amount: money.NewAmount(x.amount), ChainID: baseNumber,
			Nonce: nonce, Gas: 60_000, MaxFee: money.NewAmount(1_000_000_000), Tip: money.NewAmount(1),
			Made: made}))
	}
	return x
}

func (w *world) signIn(r *rand.Rand, network string) wanted {
	x := w.plain(r)
	solana, evm := w.payer(r, &x)
	x.network, x.source, x.asset, x.payTo, x.amount, x.counts = network, evm, "", "", 0, 0
	kind := "eip191"
	if x402.IsSolana(network) {
		x.source, kind = solana, "ed25519"
	}
	x.isSignIn, x.key = true, ""
	x.row = func(p *history.Payment) { p.Scheme, p.Symbol = x402.SignInScheme, "" }
	nonce := fmt.Sprintf("%016x", r.Uint64())
	x.sign = func(w *world, x wanted, a asks.Asks, p history.Payment) error {
		return must.Err(a.SignIn(w.t.Context(), p.ID, x402.SignIn{Domain: x.host, Address: x.source,
			URI: x.url(), Version: "1", ChainID: network, Type: kind, Nonce: nonce,
			IssuedAt: w.ticker.now().UTC().Format(time.RFC3339)}))
	}
	return x
}

// ordered is the purchase of today by the subscription: now and then of somebody else, or for more. It is
// dearer than what is paid without a yes.
func (w *world) ordered(r *rand.Rand) wanted {
	x := w.plain(r)
	_, x.source = w.keys.Addresses()
	x.agent, x.account, x.host, x.path, x.isOutgoing, x.isOrdered = "", "", newsHost, "/daily", true, true
	x.payTo = pick(r, payees[0], payees[0], payees[1])
	x.amount = pick[uint64](r, 50_000, 50_000, 60_000, 70_000)
	x.counts, x.fingerprint = x.amount, news.Request
	slot, _ := news.Slot(w.ticker.now())
	x.key = news.Key(pick(r, slot, slot, slot.Add(-news.Every)))
	switch r.IntN(6) {
	case 0:
		x.host = "api.example"
	case 1:
		x.path = "/x"
	}
	x.sign = func(w *world, x wanted, a asks.Asks, p history.Payment) error {
		return must.Err(a.SignTransfer(w.t.Context(), w.authorization(x, p)))
	}
	return x
}
