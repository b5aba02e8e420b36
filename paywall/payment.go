package paywall

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// maxPayment bounds a payment as it is presented: with extensions echoed the longest real one has 8 KiB.
const maxPayment = x402.MaxHeader

// errNotJSON: the payment is no JSON at all, which JSON-RPC has a code of its own for.
var errNotJSON = errors.New("it is not JSON")

// payment is a parsed PaymentPayload.
type payment struct {
	raw        json.RawMessage
	Version    int                        `json:"x402Version"`
	Scheme     string                     `json:"scheme"`   // V1
	Network    string                     `json:"network"`  // V1
	Accepted   json.RawMessage            `json:"accepted"` // V2
	Payload    json.RawMessage            `json:"payload"`  // the scheme's own
	Extensions map[string]json.RawMessage `json:"extensions"`

	mpp  *mppChallenge // what it answers where it came in MPP; nil: it came in x402
	name string        // the buyer's, once readIdentifier has read it
}

// decodePayment reads a PaymentPayload of either version, strictly.
func decodePayment(raw []byte) (*payment, error) {
	p := &payment{}
	if err := x402.DecodeStrict(raw, maxPayment, p); err != nil {
		if !json.Valid(raw) {
			err = errNotJSON
		}
		return nil, fmt.Errorf("%w: %w", ErrInvalidRequest, err)
	}
	p.raw = raw
	isObject := func(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
	switch {
	case p.Version != 1 && p.Version != 2:
		return nil, fmt.Errorf("%w: its x402Version is neither 1 nor 2", ErrInvalidRequest)
	case !isObject(p.Payload):
		return nil, fmt.Errorf("%w: it has no payload", ErrInvalidRequest)
	case p.Version == 2 && !isObject(p.Accepted):
		return nil, fmt.Errorf("%w: it does not say what it accepted", ErrInvalidRequest)
	case p.Version == 1 && (p.Scheme == "" || p.Network == ""):
		return nil, fmt.Errorf("%w: it names no scheme or network", ErrInvalidRequest)
	}
	return p, nil
}

// add takes one more payment of the same request. Two that differ are an error.
func (p *payment) add(raw []byte, err error) (*payment, error) {
	if err != nil {
		return nil, err
	}
	more, err := decodePayment(raw)
	if err == nil && p != nil && !sameJSON(p.raw, more.raw) {
		err = fmt.Errorf("%w: there are two, and they differ", ErrInvalidRequest)
	}
	return more, err
}

// isSignedAs reports whether another PaymentPayload has the very same signed part. With one nonce a
// buyer can sign many payments: what the chain says of this one counts for a sale of this one only.
func (p *payment) isSignedAs(taken json.RawMessage) bool {
	other, err := decodePayment(taken)
	return err == nil && sameJSON(p.Payload, other.Payload)
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// decodeBase64 reads a payment in base64.
func decodeBase64(where, text string) ([]byte, error) {
	if len(text) > base64.StdEncoding.EncodedLen(maxPayment) {
		return nil, fmt.Errorf("%w: it is longer than %d bytes", ErrInvalidRequest, maxPayment)
	}
	raw, err := wire.Unwrap(where, text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w, nor base64 of it", ErrInvalidRequest, errNotJSON)
	}
	return raw, nil
}

// signed is what a payment's own signature covers, as far as it can be read here.
type signed struct {
	uniqueKey string // the nonce or message hash: the same for every spelling of this payment
	payer     string // "" where it cannot be read here
	expires   time.Time
	evidence  x402.Evidence   // what the chain can be asked by; zero where it cannot be
	channel   *channelPayment // by batch-settlement; nil: it is not
}

// Why a payment is not what was asked for, in the reference server's words where it has any.
var (
	errNoMatch    = fmt.Errorf("%w: no matching payment requirements", ErrPaymentRejected)
	errPayee      = fmt.Errorf("%w: it pays another payee", ErrPaymentRejected)
	errAmount     = fmt.Errorf("%w: it pays another amount", ErrPaymentRejected)
	errAsset      = fmt.Errorf("%w: it pays in another asset", ErrPaymentRejected)
	errNotYet     = fmt.Errorf("%w: it is not valid yet", ErrPaymentRejected)
	errExpired    = fmt.Errorf("%w: it has expired, or is about to", ErrPaymentRejected)
	errExtensions = fmt.Errorf("%w: extension_echo_mismatch", ErrPaymentRejected)
	errNonce      = fmt.Errorf("%w: its nonce is not the challenge's", ErrPaymentRejected)
	errSignedBy   = fmt.Errorf("%w: it is not signed by its payer", ErrPaymentRejected)
)

// match finds the offer that a payment was made for, and reads what it signs. In version 2 the payment
// names its offer, and every member of the offer has to be in it; in version 1 only what is signed can
// tell two tokens of one network apart. In both, what is signed has to be what was asked for.
func (w *Paywall) match(p *payment, offers []offer) (offer, signed, error) {
	refusal := errNoMatch
	for _, o := range offers {
		if o.way == x402.Upto && p.Version == 2 {
			o.terms[2] = w.uptoTerms(o.terms[2], p.Accepted)
		}
		r := o.terms[p.Version]
		if r.Version == 0 || !p.names(o, r) {
			continue
		}
		p.accept(r)
		read := w.readEVM
		switch {
		case x402.IsSolana(o.Network):
			read = w.readSolana
		case o.way == x402.BatchSettlement:
			read = w.readChannel
		case o.way != x402.Exact:
			read = w.readPermit2
		}
		s, err := read(p, o)
		if err == nil || errors.Is(err, errExpired) {
			return o, s, err
		}
		if errors.Is(refusal, errNoMatch) || !errors.Is(err, errPayee) {
			refusal = err
		}
	}
	return offer{}, signed{}, refusal
}

// names reports whether the payment says that it is for this offer, of which r are the terms in its version.
func (p *payment) names(o offer, r x402.Requirement) bool {
	if p.mpp != nil {
		return p.mpp.isFor(o)
	}
	if p.Version == 2 {
		return matchesOffer(p.Accepted, r.Raw)
	}
	return p.Scheme == r.Scheme && p.Network == r.NetworkName
}

// matchesOffer reports whether a buyer's `accepted` is our offer: the same members with the same
// values, letter case included, and of extra at least what we said (x402 2.27 core/server).
func matchesOffer(accepted, ours json.RawMessage) bool {
	if bytes.Equal(accepted, ours) { // most buyers send back what they got
		return true
	}
	var theirs, own map[string]any
	if json.Unmarshal(accepted, &theirs) != nil || json.Unmarshal(ours, &own) != nil {
		return false
	}
	extra, _ := own["extra"].(map[string]any)
	theirExtra, _ := theirs["extra"].(map[string]any)
	delete(own, "extra")
	delete(theirs, "extra")
	return reflect.DeepEqual(theirs, own) && containsAll(extra, theirExtra)
}

// containsAll reports whether every member of a is in b with the same value; nested objects likewise.
func containsAll(a, b map[string]any) bool {
	for key, value := range a {
		other, there := b[key]
		inner, isObject := value.(map[string]any)
		otherInner, otherIsObject := other.(map[string]any)
		switch {
		case !there || isObject != otherIsObject:
			return false
		case isObject && !containsAll(inner, otherInner):
			return false
		case !isObject && !reflect.DeepEqual(value, other):
			return false
		}
	}
	return true
}

// authorized are the keys of a payload by EIP-3009.
type authorized struct {
	Authorization json.RawMessage `json:"authorization"`
	Signature     string          `json:"signature"`
}

// readEVM reads an EIP-3009 authorization. Whether its signature is valid is for the facilitator to
// say: nobody else can for a contract wallet (ERC-1271), whose signature may look like a plain key's. But
// in V1, where only that tells two tokens apart, a signature of a plain key has to be the payer's, over this
// token.
func (w *Paywall) readEVM(p *payment, o offer) (s signed, err error) {
	var said authorized
	if err := x402.DecodeStrict(p.Payload, maxPayment, &said); err != nil {
		return s, fmt.Errorf("%w: its payload: %w", ErrInvalidRequest, err)
	}
	a, err := evm.DecodeAuthorization(said.Authorization)
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrInvalidRequest, err)
	}
	now := w.now()
	switch {
	case !strings.EqualFold(a.To, o.PayTo):
		return s, errPayee
	case a.Value != o.Amount:
		return s, errAmount
	case p.mpp != nil && a.Nonce != p.mpp.nonce():
		return s, errNonce
	case a.ValidAfter > now.Unix():
		return s, errNotYet
	case p.Version == 1 && len(said.Signature) == 2+2*65 && !isSignedByPayer(p, o):
		return s, errSignedBy
	}
	s.expires = earlier(time.Unix(a.ValidBefore, 0), now.Add(o.terms[p.Version].MaxTimeout))
	s.payer = a.From
	nonce := "0x" + hex.EncodeToString(a.Nonce[:])
	asset := money.NewAsset(o.Network, o.Asset.Address)
	s.uniqueKey = strings.Join([]string{asset.Network, asset.Address, strings.ToLower(a.From), nonce}, " ")
	end := time.Unix(a.ValidBefore, 0)
	s.evidence = x402.Evidence{Network: o.Network, Asset: o.Asset.Address, Payer: a.From, PayTo: a.To,
		Amount: a.Value, Nonce: nonce, ValidBefore: a.ValidBefore, ExpiresAt: end}
	if end.Sub(now) <= w.settleMargin {
		return s, errExpired // s is complete: the payment may have had its run
	}
	return s, nil
}

func isSignedByPayer(p *payment, o offer) bool {
	_, _, err := payload.Recover(o.Network, o.Asset, p.Payload)
	return err == nil
}

// blockhashLife is how long a Solana transaction stays valid at least, counted from when it reaches
// us: 150 blocks of 0.4 s.
const blockhashLife = 60 * time.Second

// readSolana reads a transaction. Wallets may add instructions of their own that this package cannot
// read (Lighthouse); then only the facilitator compares it with the offer, which it does in any case.
func (w *Paywall) readSolana(p *payment, o offer) (s signed, err error) {
	var said struct {
		Transaction string `json:"transaction"`
	}
	if err := x402.DecodeStrict(p.Payload, maxPayment, &said); err != nil {
		return s, fmt.Errorf("%w: its payload: %w", ErrInvalidRequest, err)
	}
	message, err := transactionMessage(said.Transaction)
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrInvalidRequest, err)
	}
	now := w.now()
	s.uniqueKey = fmt.Sprintf("%s %x", o.Network, sha256.Sum256(message))
	s.expires = earlier(now.Add(blockhashLife), now.Add(o.terms[p.Version].MaxTimeout))
	t, err := decode.Transaction(said.Transaction)
	if err != nil {
		return s, nil //nolint:nilerr // with instructions of the wallet's own, see above
	}
	destination, err := decode.AssociatedAccount(o.PayTo, o.Asset.Address, o.Asset.Token2022)
	switch {
	case err != nil || t.Destination != destination:
		return s, errPayee
	case t.Mint != o.Asset.Address:
		return s, errAsset
	case t.Amount != o.Amount:
		return s, errAmount
	}
	s.payer = t.Authority
	own := t.Signers[1] // the authority: decode saw to it
	if !own.Verified {
		return s, errSignedBy
	}
	s.evidence = x402.Evidence{Network: o.Network, Asset: o.Asset.Address, Payer: t.Authority, PayTo: o.PayTo,
		Amount: t.Amount, Signature: own.Signature, Source: t.Source, Destination: t.Destination,
		Memo: t.Memo, FeePayer: t.FeePayer, Blockhash: t.Blockhash, ExpiresAt: s.expires}
	return s, nil
}

var errNoTransaction = errors.New("it is no transaction")

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// transactionMessage is the part of a transaction that its signatures cover: the same for every
// spelling of it.
func transactionMessage(text string) ([]byte, error) {
	const packet = 1232 // bytes, Solana's limit for a transaction
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) == 0 || len(raw) > packet {
		return nil, errNoTransaction
	}
	signatures := int(raw[0])
	start := 1 + 64*signatures
	if signatures > 16 || len(raw) <= start {
		return nil, errNoTransaction
	}
	return raw[start:], nil
}

// checkExtensions compares the extensions that come back with those that were declared: what is echoed
// has to contain at least the declared info (x402 2.27 validateExtensions). Echoing none is fine.
func (p *payment) checkExtensions(declared map[string]json.RawMessage) error {
	for key, ours := range declared {
		theirs, there := p.Extensions[key]
		if !there || bytes.Equal(theirs, []byte("null")) || bytes.Equal(theirs, ours) {
			continue
		}
		var own, other struct {
			Info map[string]any `json:"info"`
		}
		if json.Unmarshal(ours, &own) != nil {
			continue
		}
		if json.Unmarshal(theirs, &other) != nil || !containsAll(own.Info, other.Info) {
			return errExtensions
		}
	}
	return nil
}
