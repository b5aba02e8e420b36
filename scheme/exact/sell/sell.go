// Package sell is how a seller is paid exactly what is asked: by EIP-3009 on EVM chains, by a transfer of SPL
// tokens on Solana.
//
// What must stay true: what is signed pays the asked amount of the asked asset to the asked payee.
package sell

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/facilitator"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

var (
	errNonce    = fmt.Errorf("%w: its nonce is not the challenge's", selling.ErrRejected)
	errMemo     = fmt.Errorf("%w: its memo is not the challenge's externalId", selling.ErrRejected)
	errSignedBy = fmt.Errorf("%w: it is not signed by its payer", selling.ErrRejected)
)

// Way is a selling.Way.
type Way struct{ selling.Plain }

func (Way) Traits() selling.Traits { return selling.Traits{Name: x402.Exact, Scheme: x402.Exact} }

// SettlerIn implements selling.Way: on Solana a transaction names who pays its fee.
func (Way) SettlerIn(network string) string {
	if x402.IsSolana(network) {
		return "feePayer"
	}
	return ""
}

func (Way) Extra(o selling.Option, _ facilitator.Kind, extra map[string]json.RawMessage) error {
	if !x402.IsSolana(o.Network) {
		o.Domain(extra)
	}
	return nil
}

func (Way) Read(p selling.Shown, s selling.Shop) (selling.Signed, error) {
	if x402.IsSolana(p.Option.Network) {
		return readSolana(p, s.Now())
	}
	return readEVM(p, s)
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
func readEVM(p selling.Shown, shop selling.Shop) (s selling.Signed, err error) {
	var said authorized
	if err := p.ReadPayload(&said); err != nil {
		return s, err
	}
	a, err := evm.DecodeAuthorization(said.Authorization)
	if err != nil {
		return s, fmt.Errorf("%w: %w", selling.ErrInvalid, err)
	}
	now, o := shop.Now(), p.Option
	switch {
	case !strings.EqualFold(a.To, o.PayTo):
		return s, selling.ErrPayee
	case a.Value != o.Amount:
		return s, selling.ErrAmount
	case p.Nonce != nil && a.Nonce != *p.Nonce:
		return s, errNonce
	case a.ValidAfter > now.Unix():
		return s, selling.ErrNotYet
	case p.Version == 1 && len(said.Signature) == 2+2*65 && !isSignedByPayer(p):
		return s, errSignedBy
	}
	s.Expires = selling.Earlier(time.Unix(a.ValidBefore, 0), now.Add(p.Asked.MaxTimeout))
	s.Payer = a.From
	nonce := "0x" + hex.EncodeToString(a.Nonce[:])
	asset := money.NewAsset(o.Network, o.Asset.Address)
	s.UniqueKey = strings.Join([]string{asset.Network, asset.Address, strings.ToLower(a.From), nonce}, " ")
	end := time.Unix(a.ValidBefore, 0)
	s.Evidence = x402.Evidence{Network: o.Network, Asset: o.Asset.Address, Payer: a.From, PayTo: a.To,
		Amount: a.Value, Nonce: nonce, ValidBefore: a.ValidBefore, ExpiresAt: end}
	if end.Sub(now) <= shop.Margin {
		return s, selling.ErrExpired
	}
	return s, nil
}

func isSignedByPayer(p selling.Shown) bool {
	_, _, err := payload.Recover(p.Option.Network, p.Option.Asset, p.Payload)
	return err == nil
}

// blockhashLife is how long a Solana transaction stays valid at least, counted from when it reaches
// us: 150 blocks of 0.4 s.
const blockhashLife = 60 * time.Second

// readSolana reads a transaction. Wallets may add instructions of their own that this package cannot
// read (Lighthouse); then only the facilitator compares it with the offer, which it does in any case. But no
// facilitator knows of a challenge of MPP: its memo has to be read here.
func readSolana(p selling.Shown, now time.Time) (s selling.Signed, err error) {
	var said struct {
		Transaction string `json:"transaction"`
	}
	if err := p.ReadPayload(&said); err != nil {
		return s, err
	}
	message, err := transactionMessage(said.Transaction)
	if err != nil {
		return s, fmt.Errorf("%w: %w", selling.ErrInvalid, err)
	}
	o := p.Option
	s.UniqueKey = fmt.Sprintf("%s %x", o.Network, sha256.Sum256(message))
	s.Expires = selling.Earlier(now.Add(blockhashLife), now.Add(p.Asked.MaxTimeout))
	t, err := decode.Rules{AnyBudgetOrder: true}.Transaction(said.Transaction)
	switch {
	case p.Nonce != nil && (err != nil || t.Memo != hex.EncodeToString(p.Nonce[:])):
		return s, errMemo
	case err != nil:
		return s, nil //nolint:nilerr // with instructions of the wallet's own, see above
	}
	destination, err := decode.AssociatedAccount(o.PayTo, o.Asset.Address, o.Asset.Token2022)
	switch {
	case err != nil || t.Destination != destination:
		return s, selling.ErrPayee
	case t.Mint != o.Asset.Address:
		return s, selling.ErrAsset
	case t.Amount != o.Amount:
		return s, selling.ErrAmount
	}
	s.Payer = t.Authority
	own := t.Signers[1] // the authority: decode saw to it
	if !own.Verified {
		return s, errSignedBy
	}
	s.Evidence = x402.Evidence{Network: o.Network, Asset: o.Asset.Address, Payer: t.Authority, PayTo: o.PayTo,
		Amount: t.Amount, Signature: own.Signature, Source: t.Source, Destination: t.Destination,
		Memo: t.Memo, FeePayer: t.FeePayer, Blockhash: t.Blockhash, ExpiresAt: s.Expires}
	return s, nil
}

var errNoTransaction = errors.New("it is no transaction")

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
