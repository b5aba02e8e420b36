package evm

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

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

// IsUpto reports whether less than Amount may be settled.
func (a Permit2Authorization) IsUpto() bool { return sameAddress(a.Spender, UptoProxy) }

// Permit2Digest is what is signed for a on a network: keccak256(0x1901 ‖ domainSeparator ‖ hashStruct)
// (EIP-712). A spender that is neither of the proxies, or a facilitator where there must be none, is an
// error.
func Permit2Digest(network string, a Permit2Authorization) (digest [32]byte, err error) {
	chain, err := chainID(network)
	if err != nil {
		return digest, err
	}
	_, errFrom := parseAddress(a.From)
	to, errTo := parseAddress(a.To)
	token, errToken := parseAddress(a.Token)
	spender, errSpender := parseAddress(a.Spender)
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
	permitted := crypto.Keccak256(crypto.Keccak256([]byte(tokenPermissions)), wordOf(token), amount[:])
	message := crypto.Keccak256(crypto.Keccak256([]byte(witnessTransfer+tokenPermissions+kind)), permitted,
		wordOf(spender), a.Nonce[:], wordOfUint(uint64(a.Deadline)), witness)
	domain := crypto.Keccak256(crypto.Keccak256([]byte(permit2DomainType)),
		crypto.Keccak256([]byte(permit2Name)), wordOfUint(chain),
		wordOf(common.HexToAddress(Permit2Address)))
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain, message), nil
}

// witness is hashStruct of the witness, and its type.
func (a Permit2Authorization) witness(to common.Address) (hash []byte, kind string, err error) {
	after := wordOfUint(uint64(a.ValidAfter))
	switch {
	case sameAddress(a.Spender, ExactProxy) && a.Facilitator == "":
		return crypto.Keccak256(crypto.Keccak256([]byte(exactWitness)), wordOf(to), after), exactWitness, nil
	case a.IsUpto():
		facilitator, err := parseAddress(a.Facilitator)
		if err != nil {
			return nil, "", fmt.Errorf("the facilitator: %w", err)
		}
		return crypto.Keccak256(crypto.Keccak256([]byte(uptoWitness)), wordOf(to), wordOf(facilitator),
			after), uptoWitness, nil
	}
	return nil, "", errors.New("the spender is neither of the proxies of x402, or its witness another's")
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
		Nonce: amountOf(a.Nonce[:]).String(), Deadline: strconv.FormatInt(a.Deadline, 10),
		Witness: witnessJSON{To: a.To, Facilitator: a.Facilitator,
			ValidAfter: strconv.FormatInt(a.ValidAfter, 10)},
	})
}

// encodePermit2Payload joins the very bytes that were checked with the signature over them.
func encodePermit2Payload(authorization []byte, signature [65]byte) (json.RawMessage, error) {
	return json.Marshal(struct {
		Signature     string          `json:"signature"`
		Authorization json.RawMessage `json:"permit2Authorization"`
	}{hexText(signature[:]), authorization})
}

// DecodePermit2 reads the `permit2Authorization` object: exactly its keys, every value a string in canonical
// form, a spender that is one of the proxies, and a facilitator if and only if it is upto's.
func DecodePermit2(object []byte) (a Permit2Authorization, err error) {
	parts, err := members(object, "from", "permitted", "spender", "nonce", "deadline",
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
			return a, fmt.Errorf("%w: a value that is no string", errPayload)
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
	if read.err == nil && !a.IsUpto() && !sameAddress(a.Spender, ExactProxy) {
		return a, fmt.Errorf("%w: the spender is neither of the proxies of x402", errPayload)
	}
	return a, read.err
}

// addressReader reads values, and keeps the first error.
type addressReader struct{ err error }

func (r *addressReader) note(name string, err error) {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%w: %s: %w", errPayload, name, err)
	}
}

func (r *addressReader) address(name, text string) string {
	address, err := parseAddress(text)
	r.note(name, err)
	return address.Hex()
}

func (r *addressReader) amount(name, text string) money.Amount {
	amount, err := money.ParseAmount(text)
	r.note(name, err)
	return amount
}

func (r *addressReader) seconds(name, text string) int64 {
	seconds, err := parseSeconds(text)
	r.note(name, err)
	return seconds
}

// RecoverPermit2 reads a payload of Permit2 strictly, as Recover does one of EIP-3009: both keys and no
// other, the signature made by permit2Authorization.from for that network. A well formed payload that
// somebody else signed is an ErrSignature. It asks no chain: allowance, balance, nonce, times, payee,
// amount, token and facilitator are the caller's to compare. Signatures of contracts (ERC-1271) are not
// read: they need a node.
func RecoverPermit2(network string, payload []byte) (from string, a Permit2Authorization, err error) {
	if len(payload) > maxPayload {
		return "", a, fmt.Errorf("%w: longer than %d bytes", errPayload, maxPayload)
	}
	parts, err := members(payload, "permit2Authorization", "signature")
	if err != nil {
		return "", a, err
	}
	if a, err = DecodePermit2(parts[0]); err != nil {
		return "", a, err
	}
	signature, err := decodeSignature(parts[1])
	if err != nil {
		return "", a, err
	}
	digest, err := Permit2Digest(network, a)
	if err != nil {
		return "", a, fmt.Errorf("%w: %w", errPayload, err)
	}
	return a.From, a, signedBy(a.From, digest, signature)
}

func decodeSignature(raw json.RawMessage) (signature [65]byte, err error) {
	var text string
	err = json.Unmarshal(raw, &text)
	if err == nil {
		err = fixedHex(signature[:], text)
	}
	if err != nil {
		err = fmt.Errorf("%w: signature: %w", errPayload, err)
	}
	return signature, err
}

// signedBy reports whether a signature is an address's.
func signedBy(address string, digest [32]byte, signature [65]byte) error {
	signer, err := signerOf(digest, signature)
	if err == nil && !sameAddress(signer.Hex(), address) {
		err = fmt.Errorf("%w: it is by %s", ErrSignature, signer.Hex())
	}
	return err
}

// IsPermit2 reports whether a payload says that it is one of Permit2; whether it is, RecoverPermit2 says.
func IsPermit2(payload []byte) bool {
	var all map[string]json.RawMessage
	if x402.DecodeStrict(payload, maxPayload, &all) != nil {
		return false
	}
	_, is := all["permit2Authorization"]
	return is
}
