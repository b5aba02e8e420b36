package svm

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/chain/rpc"
	"x402-wallet/x402"
)

// Under Token-2022 a token has rules of its issuer: a fee that the payee bears, a pause, a program that
// runs with each transfer. They are extensions of the mint and of token accounts, and a signed payment
// that meets one is held until it has expired, or moves less than the price. So they are read with the
// accounts that are read anyway, and what reading cannot tell, the node's simulation of the unsigned
// transaction does. A fee is refused and not added: facilitators take a transfer of exactly the price
// only, and the payee has to get exactly that.

// The extensions of a mint that matter (spl-token-2022: extension/mod.rs, ExtensionType).
const (
	extTransferFee       = 1
	extConfidential      = 5 // of a token account
	extMemoTransfer      = 8 // of a token account
	extNonTransferable   = 9
	extTransferHook      = 14
	extPausable          = 26
	newestKnownExtension = 28
)

// ofAccounts are the types that only token accounts have.
var ofAccounts = []uint16{2, extConfidential, 7, extMemoTransfer, 11, 13, 15, 17, 27}

const mintSize = 82 // without extensions

// extension is one of a mint or token account.
type extension struct {
	kind  uint16
	value []byte
}

// extensions reads those of a Token-2022 mint or token account, which is size bytes long without any. With
// some it is filled up to tokenAccountSize; a byte says which of the two it is, and then come kind, length
// and value of each.
func extensions(data []byte, size int, is byte) (list []extension, ok bool) {
	if len(data) <= tokenAccountSize {
		return nil, len(data) == size
	}
	if data[tokenAccountSize] != is {
		return nil, false
	}
	for rest := data[tokenAccountSize+1:]; len(rest) >= 4; {
		kind, length := binary.LittleEndian.Uint16(rest), int(binary.LittleEndian.Uint16(rest[2:]))
		if kind == 0 { // unused space
			return list, true
		}
		if len(rest) < 4+length {
			return nil, false
		}
		list = append(list, extension{kind, rest[4 : 4+length]})
		rest = rest[4+length:]
	}
	return list, true
}

// epochOf reads the epoch off it: slot, the epoch's start, epoch.
func epochOf(at *account) (uint64, bool) {
	if at == nil || len(at.data) < 24 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(at.data[16:]), true
}

// checkMint refuses a Token-2022 mint of which a transfer is not simply a transfer.
func (p *plan) checkMint(mint, clock *account) error {
	const typeMint = 1
	if mint == nil || mint.program != token2022 {
		return p.refused("is not one of the Token-2022 program")
	}
	list, ok := extensions(mint.data, mintSize, typeMint)
	epoch, okClock := epochOf(clock)
	if !ok || !okClock {
		return p.refused("has rules that cannot be read")
	}
	if decimals := mint.data[44]; decimals != p.decimals {
		return p.refused("has %d decimals, and %d in this wallet's list of assets", decimals, p.decimals)
	}
	for _, x := range list {
		if why := x.whyNot(epoch); why != "" {
			return p.refused("%s", why)
		}
	}
	return nil
}

func (p *plan) refused(format string, args ...any) error {
	return invalid("the token %s "+format, append([]any{p.mint}, args...)...).
		WithHint("pay by another option, or ask the seller to take another token")
}

// whyNot says what an extension of a mint does to a payment; "": nothing.
func (x extension) whyNot(epoch uint64) string {
	switch {
	case slices.Contains(ofAccounts, x.kind) || x.kind > newestKnownExtension:
		return fmt.Sprintf("has a rule that this wallet does not know (extension %d)", x.kind)
	case x.kind == extNonTransferable:
		return "cannot be transferred"
	case x.kind == extTransferFee:
		return x.fee(epoch)
	case x.kind == extTransferHook:
		return x.hook()
	case x.kind == extPausable:
		if x.flag(32, true) { // behind the authority
			return "is paused: its issuer has stopped all transfers"
		}
	}
	return ""
}

// fee: two authorities (64 bytes), what is withheld (8), and two fees of epoch (8), most (8) and basis
// points (2). The older one counts until the epoch of the newer. The newer counts before, too: the payment
// may land later than it is signed.
func (x extension) fee(epoch uint64) string {
	const older, newer, end = 72, 90, 108
	if len(x.value) < end {
		return "has a transfer fee that cannot be read"
	}
	points := func(at int) uint16 {
		if binary.LittleEndian.Uint64(x.value[at+8:]) == 0 { // at most nothing
			return 0
		}
		return binary.LittleEndian.Uint16(x.value[at+16:])
	}
	most := points(newer)
	if epoch < binary.LittleEndian.Uint64(x.value[newer:]) {
		most = max(most, points(older))
	}
	if most == 0 {
		return ""
	}
	return "takes a fee of " + strconv.FormatFloat(float64(most)/100, 'f', -1, 64) +
		" % out of every transfer: the seller would get less than the price"
}

// hook: an authority, and the program, which is zero for none.
func (x extension) hook() string {
	if len(x.value) < 64 {
		return "has a transfer hook that cannot be read"
	}
	program := solana.PublicKey(x.value[32:64])
	if program.IsZero() {
		return ""
	}
	return fmt.Sprintf("runs a program of its issuer with every transfer (hook %s), which an x402 payment "+
		"has no room for", program)
}

// whyNotReceive says what of a token account keeps a payment out of it; "": nothing.
func whyNotReceive(at *account) string {
	if at.program != token2022 {
		return ""
	}
	list, ok := extensions(at.data, tokenAccountSize, typeAccount)
	if !ok {
		return "has rules that cannot be read"
	}
	const publicCredits = 262 // of a confidential account: does it take transfers that all can read?
	for _, x := range list {
		switch {
		case x.kind == extMemoTransfer && x.flag(0, true): // facilitators take no other order than ours
			return "takes only transfers with a memo before them, and an x402 payment has it behind"
		case x.kind == extConfidential && !x.flag(publicCredits, false):
			return "takes only confidential transfers"
		}
	}
	return ""
}

// flag is a yes or no of an extension, and missing where the value is too short to have it.
func (x extension) flag(at int, missing bool) bool {
	if len(x.value) <= at {
		return missing
	}
	return x.value[at] != 0
}

// simulate asks the node what would become of the transaction, before it is signed. Only Token-2022
// needs it: of a plain SPL transfer the accounts say everything. A node that cannot say stops
// the payment with RPC_ERROR.
func (p *plan) simulate(ctx context.Context, n *node) error {
	if p.program != token2022 {
		return nil
	}
	message, err := p.message()
	if err != nil {
		return err
	}
	why, err := n.simulate(ctx, serialize([64]byte{}, message))
	if err != nil {
		if rpc.Refused(err) {
			return x402.AsError(err).WithHint("a payment in a Token-2022 token is signed only after the " +
				"node has simulated it: the owner sets an rpc in config.toml that can do that")
		}
		return err
	}
	if why == nil {
		return nil
	}
	return p.refusedBySimulation(why)
}

// simulate is why a transaction that nobody has signed yet would fail; nil: it would not.
func (n *node) simulate(ctx context.Context, transaction []byte) (why json.RawMessage, err error) {
	var answer struct {
		Value *struct{ Err json.RawMessage }
	}
	const method = "simulateTransaction"
	err = n.Call(ctx, &answer, method, base64.StdEncoding.EncodeToString(transaction),
		map[string]any{"commitment": confirmed, "encoding": "base64", "sigVerify": false,
			// one of several nodes behind a URL may not know the newest yet
			"replaceRecentBlockhash": true})
	if err == nil && answer.Value == nil {
		err = n.Failed(method, errors.New("neither true nor false"))
	}
	if err != nil || len(answer.Value.Err) == 0 || string(answer.Value.Err) == "null" {
		return nil, err
	}
	return answer.Value.Err, nil
}

// tokenErrors are what a transfer can fail with in the token program (spl-token-2022: error.rs).
var tokenErrors = map[uint32]string{
	17: "the source or the seller's token account is frozen by the token's issuer",
	36: "the seller's token account takes only transfers with a memo before them",
	37: "the token cannot be transferred",
	67: "the token is paused: its issuer has stopped all transfers",
}

// simulationErrors are what a transaction can fail with as a whole.
var simulationErrors = map[string]string{
	"AccountNotFound":         "the fee payer that is named has no SOL",
	"InsufficientFundsForFee": "the fee payer that is named has too little SOL",
}

// refusedBySimulation puts the runtime's reason in words.
func (p *plan) refusedBySimulation(raw json.RawMessage) error {
	var whole string
	var failed struct{ InstructionError []json.RawMessage }
	var custom struct{ Custom *uint32 }
	words := ""
	switch {
	case json.Unmarshal(raw, &whole) == nil:
		words = simulationErrors[whole]
	case json.Unmarshal(raw, &failed) == nil && len(failed.InstructionError) == 2 &&
		string(failed.InstructionError[0]) == transferIndex &&
		json.Unmarshal(failed.InstructionError[1], &custom) == nil && custom.Custom != nil:
		words = tokenErrors[*custom.Custom]
	}
	if words == "" {
		words = "the chain would not take the transfer"
	}
	return invalid("simulated before it is signed, the payment fails: %s", words).
		WithHint("nothing was signed; pay by another option, or ask the seller to take another token").
		WithDetail("simulation", x402.Brief(string(raw))).WithDetail("asset", p.mint.String())
}

// transferIndex is the transfer's place among a payment's instructions.
const transferIndex = "2"
