package message

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

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

// The EIP-712 types, spelled as they are hashed (Permit2's SignatureTransfer; @x402/evm 2.27). Permit2's
// domain has no version. Members of a struct's type come in the order of their names.
const (
	permit2DomainType = "EIP712Domain(string name,uint256 chainId,address verifyingContract)"
	permit2Name       = "Permit2"
	tokenPermissions  = "TokenPermissions(address token,uint256 amount)"
	exactWitness      = "Witness(address to,uint256 validAfter)"
	uptoWitness       = "Witness(address to,address facilitator,uint256 validAfter)"
	witnessTransfer   = "PermitWitnessTransferFrom(TokenPermissions permitted,address spender," +
		"uint256 nonce,uint256 deadline,Witness witness)"
)

// Permit2Authorization is what is signed for a payment by Permit2. With the exact proxy as spender it is a
// bearer cheque for Amount until Deadline; with the upto proxy Facilitator alone can settle it, once, for
// Amount at most.
type Permit2Authorization struct {
	From, To             string // EIP-55
	Token                string // EIP-55
	Amount               money.Amount
	Spender              string   // EIP-55: ExactProxy or UptoProxy
	Facilitator          string   // EIP-55; "" with ExactProxy
	Nonce                [32]byte // big endian; one space for all that the payer signs by Permit2
	ValidAfter, Deadline int64    // Unix seconds; a block counts whose time is neither before nor after them
}

// Permit2Digest is what is signed for a on a network: keccak256(0x1901 ‖ domainSeparator ‖ hashStruct)
// (EIP-712). A spender that is neither of the proxies, or a facilitator where there must be none, is an
// error.
func Permit2Digest(network string, a Permit2Authorization) (digest [32]byte, err error) {
	chain, err := ChainID(network)
	if err != nil {
		return digest, err
	}
	_, errFrom := ParseAddress(a.From)
	to, errTo := ParseAddress(a.To)
	token, errToken := ParseAddress(a.Token)
	spender, errSpender := ParseAddress(a.Spender)
	if err := errors.Join(errFrom, errTo, errToken, errSpender); err != nil {
		return digest, err
	}
	if a.ValidAfter < 0 || a.Deadline < 0 {
		return digest, errors.New("a time before 1970")
	}
	witness, kind, err := a.witness(to)
	if err != nil {
		return digest, err
	}
	amount := a.Amount.Bytes32()
	permitted := crypto.Keccak256(crypto.Keccak256([]byte(tokenPermissions)), Word(token), amount[:])
	message := crypto.Keccak256(crypto.Keccak256([]byte(witnessTransfer+tokenPermissions+kind)), permitted,
		Word(spender), a.Nonce[:], WordOfUint(uint64(a.Deadline)), witness)
	domain := crypto.Keccak256(crypto.Keccak256([]byte(permit2DomainType)),
		crypto.Keccak256([]byte(permit2Name)), WordOfUint(chain),
		Word(common.HexToAddress(Permit2Address)))
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain, message), nil
}

// permit2JSON is the message in JSON, its keys in the reference client's order.
type permit2JSON struct {
	From      string        `json:"from"`
	Permitted permittedJSON `json:"permitted"`
	Spender   string        `json:"spender"`
	Nonce     string        `json:"nonce"`
	Deadline  string        `json:"deadline"`
	Witness   witnessJSON   `json:"witness"`
}

type permittedJSON struct {
	Token  string `json:"token"`
	Amount string `json:"amount"`
}

type witnessJSON struct {
	To          string `json:"to"`
	Facilitator string `json:"facilitator,omitempty"`
	ValidAfter  string `json:"validAfter"`
}

// EncodePermit2 writes the `permit2Authorization` object.
func EncodePermit2(a Permit2Authorization) ([]byte, error) {
	return json.Marshal(permit2JSON{
		From: a.From, Permitted: permittedJSON{Token: a.Token, Amount: a.Amount.String()}, Spender: a.Spender,
		Nonce: AmountOf(a.Nonce[:]).String(), Deadline: strconv.FormatInt(a.Deadline, 10),
		Witness: witnessJSON{To: a.To, Facilitator: a.Facilitator,
			ValidAfter: strconv.FormatInt(a.ValidAfter, 10)},
	})
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

// ApprovalTransaction is the transaction that d's signer signs.
func (d PermitDraft) ApprovalTransaction() (tx Transaction, err error) {
	chain, err := ChainID(d.Asset.Network)
	if err != nil {
		return tx, err
	}
	a, g := d.Authorization, d.Transaction
	return Transaction{ChainID: chain, Nonce: g.Nonce, Gas: g.Gas, Tip: g.Tip, MaxFee: g.MaxFee,
		To: common.HexToAddress(a.Token).Bytes(), Data: ApproveData(common.HexToAddress(Permit2Address),
			a.Amount)}, nil
}

// Digests are those of the permit, and of the approval that goes with it if there is one.
func (d PermitDraft) Digests() ([][32]byte, error) {
	switch {
	case d.Approval != nil:
		approval, err := PermitDigest(d.Asset, *d.Approval)
		return [][32]byte{d.Digest, approval}, err
	case d.Transaction != nil:
		tx, err := d.ApprovalTransaction()
		if err != nil {
			return nil, err
		}
		unsigned, err := tx.Encode()
		return [][32]byte{d.Digest, crypto.Keccak256Hash(unsigned)}, err
	}
	return [][32]byte{d.Digest}, nil
}

// ApprovalOf is the approval of a payment.
func ApprovalOf(a Permit2Authorization, nonce money.Amount) *Permit {
	return &Permit{Owner: a.From, Value: a.Amount, Nonce: nonce, Deadline: a.Deadline}
}

// IsUpto reports whether less than Amount may be settled.
func (a Permit2Authorization) IsUpto() bool { return SameAddress(a.Spender, UptoProxy) }

// witness is hashStruct of the witness, and its type.
func (a Permit2Authorization) witness(to common.Address) (hash []byte, kind string, err error) {
	after := WordOfUint(uint64(a.ValidAfter))
	switch {
	case SameAddress(a.Spender, ExactProxy) && a.Facilitator == "":
		return crypto.Keccak256(crypto.Keccak256([]byte(exactWitness)), Word(to), after), exactWitness, nil
	case a.IsUpto():
		facilitator, err := ParseAddress(a.Facilitator)
		if err != nil {
			return nil, "", fmt.Errorf("the facilitator: %w", err)
		}
		return crypto.Keccak256(crypto.Keccak256([]byte(uptoWitness)), Word(to), Word(facilitator),
			after), uptoWitness, nil
	}
	return nil, "", errors.New("the spender is neither of the proxies of x402, or its witness another's")
}

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
