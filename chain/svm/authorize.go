package svm

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/chain/svm/decode"
	exactcheck "x402-wallet/scheme/exact/check"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

const (
	// slowBlockTime is how long a block takes on a bad day, skipped slots included: only for
	// telling when to look again.
	slowBlockTime = 600 * time.Millisecond
	// sharedFor is how long payments that are made together use one blockhash: a small part of its life.
	sharedFor = 10 * time.Second
)

// Authorize signs the payment that o orders. The signer is asked once, after the chain was looked
// at and the bytes to sign were read back and compared with the order. Errors: Payable's own;
// INVALID_REQUIREMENT for what only the chain shows (accounts, a token's rules); NO_DELEGATION,
// DELEGATE_MISMATCH, DELEGATION_EXHAUSTED and INSUFFICIENT_FUNDS when the source is not what it was;
// RPC_ERROR and CHECK_FAILED when the node is silent or on another chain; the signer's own; INTERNAL when
// our own bytes or signature are not what they must be. After any error nothing that was signed exists
// outside this function.
//
// o.Validity is not honoured: a transaction lives as long as its blockhash, some 60 to 90 seconds,
// and no shorter.
func (e *Exact) Authorize(ctx context.Context, o onchain.Order) (onchain.Authorization, error) {
	p, err := e.plan(o)
	if err != nil {
		return onchain.Authorization{}, err
	}
	n, err := e.node(o.Requirement.Network)
	if err != nil {
		return onchain.Authorization{}, err
	}
	if err := n.Ready(ctx); err != nil {
		return onchain.Authorization{}, err
	}
	if err := p.askChain(ctx, n, o); err != nil {
		return onchain.Authorization{}, err
	}
	if err := p.makeUnique(o.Requirement, e.options.Rand); err != nil {
		return onchain.Authorization{}, err
	}
	if err := p.simulate(ctx, n); err != nil {
		return onchain.Authorization{}, err
	}
	return e.sign(ctx, o, p)
}

// plan reads an order: what the transaction will say. Program and decimals are the registry's,
// never a node's.
func (e *Exact) plan(o onchain.Order) (*plan, error) {
	if err := e.Payable(o.Requirement, o.Asset); err != nil {
		return nil, err
	}
	names, err := e.parties(o.Requirement, o.FeePayer)
	if err != nil {
		return nil, err
	}
	if names.feePayer.IsZero() {
		return nil, invalid("nobody is named who pays the transaction's fee")
	}
	if named := e.options.TokenAccounts[o.Requirement.Network]; named != "" && named != o.Source {
		return nil, x402.Errorf(x402.Internal, "the source is not the token account of the config")
	}
	p := &plan{parties: names, agent: e.agent, program: programOf(o.Asset.Token2022),
		decimals: o.Asset.Decimals}
	p.amount, _ = o.Requirement.Amount.Uint64() // Payable saw that it fits
	p.source, err = parseKey(o.Source)
	if err != nil {
		return nil, x402.Errorf(x402.Internal, "the source is %w", err)
	}
	p.destination, _, err = solana.FindAssociatedTokenAddressWithProgram(p.payee, p.mint, p.program)
	if err != nil {
		return nil, invalid("payTo can have no token account")
	}
	return p, nil
}

// askChain asks what has to be known of the accounts, and of the blockhash, at the same time.
func (p *plan) askChain(ctx context.Context, n *node, o onchain.Order) error {
	var choosing sync.WaitGroup
	var unchosen error
	choosing.Go(func() { unchosen = p.chooseBlockhash(ctx, n, o) })
	err := p.checkAccounts(ctx, n)
	choosing.Wait()
	return cmp.Or(err, unchosen)
}

// checkAccounts asks the chain what an order does not say: that the source is still ours to spend
// from and holds enough; that payTo is a wallet whose token account exists, because no
// payment may create one; that the fee is not paid by whose money is spent; and that no rule of a
// Token-2022 mint stands in the way. It is one question to the node, whatever the token.
func (p *plan) checkAccounts(ctx context.Context, n *node) error {
	addresses := []solana.PublicKey{p.source, p.payee, p.destination}
	if p.program == token2022 {
		addresses = append(addresses, p.mint, solana.SysVarClockPubkey)
	}
	list, err := n.accounts(ctx, addresses...)
	if err != nil {
		return err
	}
	if err := p.checkSource(list[0]); err != nil {
		return err
	}
	if wallet := list[1]; wallet != nil && (wallet.executable || isTokenProgram(wallet.program)) {
		return invalid("payTo is a program, a mint or a token account: it has to be a token account's owner").
			WithDetail("payTo", p.payee.String())
	}
	if p.program == token2022 {
		if err := p.checkMint(list[3], list[4]); err != nil {
			return err
		}
	}
	return p.checkDestination(list[2])
}

func (p *plan) checkSource(at *account) error {
	source, ok := readTokenAccount(p.source, at)
	if !ok {
		return noDelegation(p.source, "missing", "there is no token account at %s", p.source)
	}
	if why := source.whyNotSpendable(p.agent, p.mint, p.program); why != nil {
		return why
	}
	// The engine has counted, but the chain may have moved since: the token program would refuse it.
	if free := source.spendable(p.agent); p.amount > free {
		code, what := x402.InsufficientFunds, "the balance"
		if source.delegatesTo(p.agent) && source.delegated < p.amount {
			code, what = x402.DelegationExhausted, "what the owner delegated"
		}
		return x402.Errorf(code, "%s of %s does not cover the price any more: it became less while the "+
			"payment was made", what, p.source).
			WithHint("the very same call says what is short").
			WithDetail("free", free).WithDetail("requested", p.amount)
	}
	if p.feePayer == source.owner || p.feePayer == p.source {
		return invalid("extra.feePayer owns the money that would be spent").
			WithDetail("feePayer", p.feePayer.String())
	}
	return nil
}

func (p *plan) checkDestination(at *account) error {
	destination, ok := readTokenAccount(p.destination, at)
	var why string
	switch {
	case !ok:
		why = "does not exist"
	case destination.owner != p.payee, destination.mint != p.mint, destination.program != p.program:
		why = "belongs to somebody else" // an account's owner can be changed
	case destination.frozen:
		why = "is frozen by the token's issuer, who alone can release it"
	case p.destination == p.source:
		why = "is the one that would pay"
	default:
		why = whyNotReceive(at)
	}
	if why == "" {
		return nil
	}
	return invalid("the seller's token account %s %s", p.destination, why).
		WithHint("nothing was signed; pay by another option: the seller has to put the account right").
		WithDetail("payTo", p.payee.String())
}

// chooseBlockhash takes the seller's hint when our own node says that it is valid, else our node's
// newest. Until when the payment can land is our node's word in both cases, and
// extra.lastValidBlockHeight is not looked at: a stranger must not make a payment look expired that
// can still land. A hash that our node calls valid is not newer than its tip, so it expires at the
// latest blockhashLife blocks after the height that the node reports afterwards.
//
// Payments that are made together share our node's newest: each differs from the others by its memo, or by
// its compute budget (makeUnique).
func (p *plan) chooseBlockhash(ctx context.Context, n *node, o onchain.Order) (err error) {
	hint, err := parseKey(o.Requirement.ExtraString("recentBlockhash"))
	if err == nil && !hint.IsZero() {
		if valid, err := n.isBlockhashValid(ctx, hint.String(), confirmed); err == nil && valid {
			height, err := n.blockHeight(ctx, confirmed)
			p.blockhash = solana.Hash(hint)
			p.lastValid = height + decode.BlockhashLife + decode.HintMargin
			p.validBlocks = decode.BlockhashLife + decode.HintMargin
			return err
		}
	}
	p.validBlocks = decode.BlockhashLife
	if o.Shared == nil {
		p.blockhash, p.lastValid, _, err = n.latestBlockhash(ctx, confirmed)
		return err
	}
	shared, err := o.Shared.Once("blockhash "+o.Requirement.Network, sharedFor, func() (any, error) {
		hash, lastValid, _, err := n.latestBlockhash(ctx, confirmed)
		return tip{hash, lastValid}, err
	})
	if err == nil {
		newest := shared.(tip)
		p.blockhash, p.lastValid = newest.hash, newest.lastValid
	}
	return err
}

// tip is a blockhash, and the last block height at which what was signed with it can land.
type tip struct {
	hash      solana.Hash
	lastValid uint64
}

// sign is the one place where the signer is asked.
func (e *Exact) sign(ctx context.Context, o onchain.Order, p *plan) (onchain.Authorization, error) {
	message, err := p.message()
	if err != nil {
		return onchain.Authorization{}, err
	}
	if e.tamper != nil {
		message = e.tamper(message)
	}
	if err := p.check(o, message); err != nil {
		return onchain.Authorization{},
			fmt.Errorf("the transaction is not what was ordered, and was not signed: %w", err)
	}
	evidence := e.evidence(o, p)
	object, err := exactcheck.Solana{Transaction: message, Evidence: evidence}.Encode()
	if err != nil {
		return onchain.Authorization{}, err
	}
	signature, err := e.options.Signer.Sign(ctx, onchain.Draft{Payment: o.Payment, Message: object,
		Signs: [][]byte{message}, Length: ed25519.SignatureSize})
	if err != nil {
		return onchain.Authorization{}, err
	}
	if len(signature) != ed25519.SignatureSize || !ed25519.Verify(p.agent[:], message, signature) {
		return onchain.Authorization{}, x402.Errorf(x402.Internal, "our own signature does not verify")
	}
	transaction := base64.StdEncoding.EncodeToString(serialize([64]byte(signature), message))
	payload, err := json.Marshal(map[string]string{"transaction": transaction})
	if err != nil {
		return onchain.Authorization{}, err
	}
	evidence.Signature = solana.Signature([64]byte(signature)).String()
	return onchain.Authorization{Payload: payload, Evidence: evidence}, nil
}

// evidence is what the chain will be asked by, but for the signature.
func (e *Exact) evidence(o onchain.Order, p *plan) x402.Evidence {
	now := o.Now
	if now.IsZero() {
		now = e.options.Now()
	}
	return x402.Evidence{
		Network: o.Requirement.Network, Asset: p.mint.String(), Payer: p.agent.String(),
		PayTo: o.Requirement.PayTo, Amount: o.Requirement.Amount,
		Source: p.source.String(), Destination: p.destination.String(), Memo: p.memo,
		FeePayer: p.feePayer.String(), Blockhash: p.blockhash.String(), LastValidBlockHeight: p.lastValid,
		ExpiresAt: now.Add(time.Duration(p.validBlocks) * slowBlockTime).UTC(),
	}
}

// What the reference client asks of the runtime (@x402/svm 2.27, exact/client).
const (
	unitLimit = 20_000 // compute units; a Token-2022 transfer with the longest memo takes 2,600
	unitPrice = 1      // micro-lamports per unit
)

// plan is what a transaction shall say.
type plan struct {
	parties
	agent, source, destination, program solana.PublicKey
	amount                              uint64
	decimals                            uint8
	limit                               uint32
	price                               uint64
	blockhash                           solana.Hash
	lastValid                           uint64 // the last block height at which it can land
	validBlocks                         int    // at most so many blocks from now
}

// makeUnique makes the transaction differ from every other of ours: two with the same words are one
// transaction to the chain, and the second payment would never happen. Where the seller
// leaves the memo to us it is 16 random bytes in hex, and the rest is as the reference client's.
// Otherwise, with the seller's memo and in the form without memo, the compute budget carries 27
// random bits: up to 4,095 units and up to 32,767 micro-lamports a unit more. Hosted facilitators refuse
// a limit somewhere above 20,000 (coinbase/cdp-sdk#795), and prices above 50,000 (x402's for smart
// wallets) or 100,000 (x402-rs). It costs the fee payer at most 790 lamports beside the 10,000 of two
// signatures. The accidental twin, one in 2^27, the ledger finds by its signature.
//
// V1 has no memo unless the seller wants one: facilitators of x402 1.2.0 take exactly three
// instructions, and newer ones take three as well. Nor has MPP, whose sellers compare it.
func (p *plan) makeUnique(r x402.Requirement, random io.Reader) error {
	p.limit, p.price = unitLimit, unitPrice
	var bits [16]byte
	if _, err := io.ReadFull(random, bits[:]); err != nil {
		return fmt.Errorf("read random bytes: %w", err)
	}
	if p.memo == "" && r.Version != 1 && r.Charge == nil {
		p.memo = hex.EncodeToString(bits[:])
		return nil
	}
	p.limit += uint32(binary.BigEndian.Uint16(bits[:]) >> 4)
	p.price += uint64(binary.BigEndian.Uint16(bits[2:]) >> 1)
	return nil
}

// Instruction numbers of the compute-budget and token programs.
const (
	opUnitLimit       = 2
	opUnitPrice       = 3
	opTransferChecked = 12
)

// message builds the version 0 message in the reference client's order: limit, price, transfer, memo.
func (p *plan) message() ([]byte, error) {
	transfer := append(binary.LittleEndian.AppendUint64([]byte{opTransferChecked}, p.amount), p.decimals)
	accounts := solana.AccountMetaSlice{solana.Meta(p.source).WRITE(), solana.Meta(p.mint),
		solana.Meta(p.destination).WRITE(), solana.Meta(p.agent).SIGNER()}
	instructions := []solana.Instruction{
		solana.NewInstruction(solana.ComputeBudget, nil,
			binary.LittleEndian.AppendUint32([]byte{opUnitLimit}, p.limit)),
		solana.NewInstruction(solana.ComputeBudget, nil,
			binary.LittleEndian.AppendUint64([]byte{opUnitPrice}, p.price)),
		solana.NewInstruction(p.program, accounts, transfer),
	}
	if p.memo != "" {
		instructions = append(instructions, solana.NewInstruction(solana.MemoProgramID, nil, []byte(p.memo)))
	}
	return compile(p.feePayer, p.blockhash, instructions...)
}

// compile makes the version 0 message of instructions. solana-go compiles it wrongly if at least two accounts
// beside the payer of the fee sign, and one that is only read where it signs is writable in another place. In
// our transactions at most one account signs beside the payer. The decoder refuses payments with more.
func compile(payer solana.PublicKey, blockhash solana.Hash, instructions ...solana.Instruction) ([]byte,
	error) {
	tx, err := solana.NewTransaction(instructions, blockhash, solana.TransactionPayer(payer),
		solana.TransactionMessageVersion(solana.MessageVersionV0))
	if err != nil {
		return nil, fmt.Errorf("compile the transaction: %w", err)
	}
	message, err := tx.Message.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("encode the message: %w", err)
	}
	return message, nil
}

// serialize puts two signatures before a message: the fee payer's, which is the facilitator's to
// fill in, and ours.
func serialize(ours [64]byte, message []byte) []byte {
	return slices.Concat([]byte{2}, make([]byte, 64), ours[:], message)
}

// check reads the message as a stranger would and compares every word of it, what comes from the
// order with the order itself. What it cannot compare with an order, the randomness and the
// blockhash, it compares with the plan.
func (p *plan) check(o onchain.Order, message []byte) error {
	t, err := decode.Message(message)
	if err != nil {
		return err
	}
	destination, err := decode.AssociatedAccount(o.Requirement.PayTo, o.Asset.Address, o.Asset.Token2022)
	if err != nil {
		return err
	}
	feePayer := cmp.Or(o.Requirement.ExtraString("feePayer"), o.FeePayer)
	for _, word := range []struct {
		what      string
		got, want any
	}{
		{"program", t.Token2022, o.Asset.Token2022},
		{"amount", t.Amount, o.Requirement.Amount},
		{"decimals", t.Decimals, o.Asset.Decimals},
		{"mint", t.Mint, o.Requirement.Asset},
		{"source", t.Source, o.Source},
		{"destination", t.Destination, destination},
		{"authority", t.Authority, p.agent.String()}, // the second and last signer: decode saw to it
		{"fee payer", t.FeePayer, feePayer},          // the first
		{"memo", t.Memo, p.memo},
		{"memo's presence", t.HasMemo, p.memo != ""},
		{"blockhash", t.Blockhash, p.blockhash.String()},
		{"unit limit", t.UnitLimit, p.limit},
		{"unit price", t.UnitPrice, p.price},
	} {
		if word.got != word.want {
			return fmt.Errorf("its %s is %v, wanted is %v", word.what, word.got, word.want)
		}
	}
	if wanted := o.Requirement.ExtraString("memo"); wanted != "" && t.Memo != wanted {
		return errors.New("its memo is not the seller's")
	}
	return nil
}
