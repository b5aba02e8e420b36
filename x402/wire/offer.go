package wire

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/signatures"
)

// What a seller signs besides (extension offer-receipt): its offer in the 402, and a receipt with the
// answer, as JWS or by EIP-712. Both are claims with a name under them: of a receipt nothing on the chain
// follows. By EIP-712 a signature never fails, a changed member only makes another signer of it; so who
// signed before is what to compare with.

// ExtensionOffers is the extension's key.
const ExtensionOffers = "offer-receipt"

const maxOffers = x402.MaxAccepts

// Attested is a seller's signed offer or receipt. All texts are the signer's.
type Attested struct {
	Format string `json:"format"` // "eip712" or "jws"
	// who signed: an account (eip712), or a DID; of what is not verified, who it names
	Signer   string `json:"signer,omitempty"`
	Verified bool   `json:"verified"`
	Why      string `json:"why,omitempty"` // it is not verified, or says something else than the payment

	Resource    string `json:"resourceUrl"`
	Network     string `json:"network"`
	Scheme      string `json:"scheme,omitempty"` // of an offer, as the next ones
	Asset       string `json:"asset,omitempty"`
	PayTo       string `json:"payTo,omitempty"`
	Amount      string `json:"amount,omitempty"`
	ValidUntil  int64  `json:"validUntil,omitempty"` // Unix seconds
	Payer       string `json:"payer,omitempty"`      // of a receipt, as the next ones
	Transaction string `json:"transaction,omitempty"`
	IssuedAt    int64  `json:"issuedAt,omitempty"` // Unix seconds
}

// attestedJSON is one of either as it stands in a challenge or a settlement.
type attestedJSON struct {
	Format      string          `json:"format"`
	AcceptIndex *int            `json:"acceptIndex"` // a hint, and not used
	Payload     json.RawMessage `json:"payload"`
	Signature   string          `json:"signature"`
}

// claims are the signed members of both.
type claims struct {
	Version     uint64 `json:"version"`
	ResourceURL string `json:"resourceUrl"`
	Scheme      string `json:"scheme"`
	Network     string `json:"network"`
	Asset       string `json:"asset"`
	PayTo       string `json:"payTo"`
	Amount      string `json:"amount"`
	ValidUntil  uint64 `json:"validUntil"`
	Payer       string `json:"payer"`
	IssuedAt    uint64 `json:"issuedAt"`
	Transaction string `json:"transaction"`
}

// attestation reads and verifies one; hash is the EIP-712 hash of its kind.
func attestation(raw json.RawMessage, hash func(claims) [32]byte) (a Attested, err error) {
	var said attestedJSON
	if x402.DecodeStrict(raw, x402.MaxHeader, &said) != nil {
		return a, errors.New("it cannot be read")
	}
	a.Format = said.Format
	payload := []byte(said.Payload)
	switch said.Format {
	case "jws":
		payload, a.Signer, err = verifyJWS(said.Signature)
		if payload == nil { // what is not verified is shown all the same, as that
			payload = jwsPayload(said.Signature)
		}
	case "eip712":
	default:
		return a, errors.New("its format is neither jws nor eip712")
	}
	var c claims
	const most = 1 << 53 // what JavaScript can say
	isReadable := x402.DecodeStrict(payload, x402.MaxHeader, &c) == nil && c.Version == 1
	if !isReadable || c.ValidUntil > most || c.IssuedAt > most {
		return a, errors.New("what is signed cannot be read")
	}
	if said.Format == "eip712" {
		signature, errHex := hex.DecodeString(strings.TrimPrefix(said.Signature, "0x"))
		if errHex != nil || len(signature) != 65 {
			err = errors.New("its signature is not 65 bytes in hex")
		} else {
			a.Signer, err = signatures.RecoverEVM(hash(c), [65]byte(signature))
		}
	}
	a.Verified, a.Resource, a.Network, a.Scheme = err == nil, c.ResourceURL, c.Network, c.Scheme
	a.Asset, a.PayTo, a.Amount, a.ValidUntil = c.Asset, c.PayTo, c.Amount, int64(c.ValidUntil)
	a.Payer, a.Transaction, a.IssuedAt = c.Payer, c.Transaction, int64(c.IssuedAt)
	if err != nil {
		a.Why = err.Error()
	}
	return a, nil
}

func jwsPayload(jws string) []byte {
	parts := strings.Split(jws, ".")
	if len(jws) > maxJWS || len(parts) != 3 {
		return nil
	}
	payload, _ := Unwrap("payload", parts[1])
	return payload
}

// The EIP-712 types of both, and their domain: it names no contract, and chain 1 whatever the network.
const (
	attestedDomain = "EIP712Domain(string name,string version,uint256 chainId)"
	offerType      = "Offer(uint256 version,string resourceUrl,string scheme,string network,string asset," +
		"string payTo,string amount,uint256 validUntil)"
	receiptType = "Receipt(uint256 version,string network,string resourceUrl,string payer," +
		"uint256 issuedAt,string transaction)"
)

func offerHash(c claims) [32]byte {
	return attestedHash("x402 offer", typed(offerType, c.Version, c.ResourceURL, c.Scheme, c.Network, c.Asset,
		c.PayTo, c.Amount, c.ValidUntil))
}

func receiptHash(c claims) [32]byte {
	return attestedHash("x402 receipt", typed(receiptType, c.Version, c.Network, c.ResourceURL, c.Payer,
		c.IssuedAt, c.Transaction))
}

func attestedHash(name string, message [32]byte) [32]byte {
	domain := typed(attestedDomain, name, "1", uint64(1))
	return signatures.Keccak256([]byte{0x19, 0x01}, domain[:], message[:])
}

// typed is EIP-712's hashStruct of texts and numbers.
func typed(kind string, values ...any) [32]byte {
	sum := signatures.Keccak256([]byte(kind))
	words := [][]byte{sum[:]}
	for _, v := range values {
		var word [32]byte
		switch v := v.(type) {
		case string:
			word = signatures.Keccak256([]byte(v))
		case uint64:
			binary.BigEndian.PutUint64(word[24:], v)
		}
		words = append(words, word[:])
	}
	return signatures.Keccak256(words...)
}

// Offer is the seller's signed offer for an option: the one with the same five members, whatever its
// acceptIndex says. nil: the challenge has no offers. One that is not verified, or a challenge whose offers
// are all for something else, says so in Why.
func (c *Challenge) Offer(r x402.Requirement) *Attested {
	a, _ := offerIn(c.Extensions[ExtensionOffers], r)
	return a
}

// offerIn is that, with the offer as it came.
func offerIn(extension json.RawMessage, r x402.Requirement) (*Attested, json.RawMessage) {
	var said struct {
		Info struct {
			Offers []json.RawMessage `json:"offers"`
		} `json:"info"`
	}
	if x402.IsNull(extension) || x402.DecodeStrict(extension, x402.MaxBody, &said) != nil ||
		len(said.Info.Offers) == 0 {
		return nil, nil
	}
	for _, raw := range said.Info.Offers[:min(len(said.Info.Offers), maxOffers)] {
		a, err := attestation(raw, offerHash)
		if err == nil && a.isFor(r) {
			return &a, raw
		}
	}
	return &Attested{Why: "none of the seller's signed offers is for what was paid"}, nil
}

// isFor compares the five members, as they are spelled.
func (a Attested) isFor(r x402.Requirement) bool {
	return a.Scheme == r.Scheme && a.Network == r.NetworkName && a.Amount == r.Amount.String() &&
		a.Asset == r.Asset && a.PayTo == r.PayTo
}

// OfferIn is the seller's signed offer that a payment as it was sent carries, for the option that it
// accepts; nil: none.
func OfferIn(payload json.RawMessage) *Attested {
	var sent struct {
		Accepted   json.RawMessage            `json:"accepted"`
		Extensions map[string]json.RawMessage `json:"extensions"`
	}
	if json.Unmarshal(payload, &sent) != nil || x402.IsNull(sent.Accepted) {
		return nil
	}
	r, err := x402.DecodeRequirement(sent.Accepted, 2)
	if err != nil {
		return nil
	}
	a, _ := offerIn(sent.Extensions[ExtensionOffers], r)
	return a
}

// ReceiptIn is the seller's signed receipt in a settlement as it came; nil: none.
func ReceiptIn(settlement json.RawMessage) *Attested {
	var said struct {
		Extensions map[string]struct {
			Info struct {
				Receipt json.RawMessage `json:"receipt"`
			} `json:"info"`
		} `json:"extensions"`
	}
	if json.Unmarshal(settlement, &said) != nil {
		return nil
	}
	raw := said.Extensions[ExtensionOffers].Info.Receipt
	if x402.IsNull(raw) {
		return nil
	}
	a, err := attestation(raw, receiptHash)
	if err != nil {
		a.Why = err.Error()
	}
	return &a
}

// receiptSkew is how far a receipt's time may be from the payment's.
const receiptSkew = time.Hour

// Compare notes in Why, of a verified receipt, what it says otherwise than the payment: its network, payer,
// transaction ("": not known), one of these URLs, and when it was made.
func (a *Attested) Compare(network, payer, transaction string, urls []string, at time.Time) {
	same := func(x, y string) bool {
		return x == y || (x402.Namespace(network) == "eip155" && strings.EqualFold(x, y))
	}
	caip2, _ := x402.Network(a.Network)
	isLate := time.Unix(a.IssuedAt, 0).Sub(at).Abs() > receiptSkew
	switch {
	case !a.Verified || a.Why != "":
	case caip2 != network:
		a.Why = "it is for another network"
	case !same(a.Payer, payer):
		a.Why = "it is for another payer"
	case a.Transaction != "" && transaction != "" && !same(a.Transaction, transaction):
		a.Why = "it names another transaction"
	case !slices.Contains(urls, a.Resource):
		a.Why = "it is for another URL"
	case isLate:
		a.Why = "it was issued at another time"
	}
}

// String says in words who signed, and what is wrong with it.
func (a Attested) String() string {
	switch {
	case !a.Verified:
		return "not verified: " + a.Why
	case a.Why != "":
		return "signed by " + x402.Brief(a.Signer) + ", but " + a.Why
	}
	return "signed by " + x402.Brief(a.Signer)
}

// kept is the one of a challenge's offers that is for an option, as an extension of its own; nil: none.
func (c *Challenge) kept(r x402.Requirement) json.RawMessage {
	_, raw := offerIn(c.Extensions[ExtensionOffers], r)
	if raw == nil {
		return nil
	}
	return members{{key: "info", value: members{{key: "offers",
		value: slices.Concat([]byte("["), raw, []byte("]"))}}.object()}}.object()
}
