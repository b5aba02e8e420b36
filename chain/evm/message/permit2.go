package message

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The contracts of a payment by Permit2, at the same addresses on every chain. Permit2 moves the payer's
// token for whoever the payer's signature names as spender; the two proxies are the spenders of x402, and pay
// nobody but the payee of the witness.
const (
	Permit2Address = "0x000000000022D473030F116dDEE9F6B43aC78BA3"
	ExactProxy     = "0x402085c248EeA27D92E8b30b2C58ed07f9E20001"
	UptoProxy      = "0x4020A4f3b7b90ccA423B9fabCc0CE57C6C240002"
)

// Permit2Authorization is what is signed for a payment by Permit2. With the exact proxy as spender it is a
// bearer cheque for Amount until Deadline; with the upto proxy Facilitator alone can settle it, once, for
// Amount at most. With PermitCollector it is a bearer cheque too, which pays nothing but a deposit.
type Permit2Authorization struct {
	From, To             string // EIP-55; To is "" with PermitCollector
	Token                string // EIP-55
	Amount               money.Amount
	Spender              string      // EIP-55: ExactProxy, UptoProxy or PermitCollector
	Facilitator          string      // EIP-55, with UptoProxy
	Channel              common.Hash // that is paid into, with PermitCollector
	Nonce                [32]byte    // big endian; one space for all that the payer signs by Permit2
	ValidAfter, Deadline int64       // Unix seconds; a block counts whose time is not before or after them
}

// DecodePermit2 reads the `permit2Authorization` object: exactly its keys, every value a string in canonical
// form, a spender that is one of the proxies, and a facilitator if and only if it is upto's.
func DecodePermit2(object []byte) (a Permit2Authorization, err error) {
	parts, err := Members(object, "from", "permitted", "spender", "nonce", "deadline",
		"witness")
	if err != nil {
		return a, err
	}
	permitted, err := textMembers(parts[1], "token", "amount")
	if err != nil {
		return a, fmt.Errorf("permitted: %w", err)
	}
	var texts [4]string
	for i, part := range []json.RawMessage{parts[0], parts[2], parts[3], parts[4]} {
		if err := json.Unmarshal(part, &texts[i]); err != nil {
			return a, fmt.Errorf("%w: a value that is no string", ErrPayload)
		}
	}
	read := addressReader{}
	a.From, a.Spender = read.address("from", texts[0]), read.address("spender", texts[1])
	a.Token, a.Amount = read.address("token", permitted[0]), read.amount("amount", permitted[1])
	a.Nonce = read.amount("nonce", texts[2]).Bytes32()
	a.Deadline = read.seconds("deadline", texts[3])
	keys := []string{"to", "validAfter"}
	if a.IsUpto() {
		keys = append(keys, "facilitator")
	}
	witness, err := textMembers(parts[5], keys...)
	if err != nil {
		return a, fmt.Errorf("witness: %w", err)
	}
	a.To, a.ValidAfter = read.address("to", witness[0]), read.seconds("validAfter", witness[1])
	if a.IsUpto() {
		a.Facilitator = read.address("facilitator", witness[2])
	}
	if read.err == nil && !a.IsUpto() && !SameAddress(a.Spender, ExactProxy) {
		return a, fmt.Errorf("%w: the spender is neither of the proxies of x402", ErrPayload)
	}
	return a, read.err
}

// addressReader reads values, and keeps the first error.
type addressReader struct{ err error }

// PermitDraft is what is signed for a payment by Permit2, with what a signer needs to judge it by itself.
type PermitDraft struct {
	Payment       string // its id in the ledger
	Asset         x402.AssetInfo
	Authorization Permit2Authorization // read back from the bytes that are sent
	Digest        [32]byte             // of it, on the asset's network
	// the approval that goes with it, of its amount: by EIP-2612 and as long, or by a transaction; nil: none
	Approval    *Permit
	Transaction *ApprovalGas
}

// ApprovalOf is the approval of a payment.
func ApprovalOf(a Permit2Authorization, nonce money.Amount) *Permit {
	return &Permit{Owner: a.From, Value: a.Amount, Nonce: nonce, Deadline: a.Deadline}
}

// IsUpto reports whether less than Amount may be settled.
func (a Permit2Authorization) IsUpto() bool { return SameAddress(a.Spender, UptoProxy) }

func (r *addressReader) note(name string, err error) {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%w: %s: %w", ErrPayload, name, err)
	}
}

func (r *addressReader) address(name, text string) string {
	address, err := ParseAddress(text)
	r.note(name, err)
	return address.Hex()
}

func (r *addressReader) amount(name, text string) money.Amount {
	amount, err := money.ParseAmount(text)
	r.note(name, err)
	return amount
}

func (r *addressReader) seconds(name, text string) int64 {
	seconds, err := ParseSeconds(text)
	r.note(name, err)
	return seconds
}

// Evidence is what the chain is asked by, what became of a payment.
func (d PermitDraft) Evidence() x402.Evidence {
	a, way := d.Authorization, x402.Permit2
	if a.IsUpto() {
		way = x402.Upto
	}
	return x402.Evidence{
		Network: d.Asset.Network, Asset: d.Asset.Address, Payer: a.From, PayTo: a.To, Amount: a.Amount,
		Nonce: "0x" + hex.EncodeToString(a.Nonce[:]), ValidBefore: a.Deadline, Way: way,
		Facilitator: a.Facilitator, ExpiresAt: time.Unix(a.Deadline, 0).UTC(),
	}
}

// Permit is EIP-2612's message: it lets Permit2 move Value of the owner's token.
type Permit struct {
	Owner    string // EIP-55
	Value    money.Amount
	Nonce    money.Amount // the token's nonces(owner)
	Deadline int64        // Unix seconds
}

// ApprovalGas is what a payment's approval by a transaction has of its own; all else in it is the payment's.
type ApprovalGas struct {
	Nonce  uint64       `json:"nonce"` // of the account that pays
	Gas    uint64       `json:"gas"`
	MaxFee money.Amount `json:"maxFee"` // wei for each gas, as is Tip
	Tip    money.Amount `json:"tip"`
}

// MaxCost is the most that its gas may cost, in wei.
func (g ApprovalGas) MaxCost() money.Amount { return g.MaxFee.Times(g.Gas) }
