package x402test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/svm"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// Account is somebody who has play money, and a key that lies open.
type Account struct {
	Network      string // CAIP-2
	Address      string
	TokenAccount string // Solana: where its play dollars lie
	// PrivateKey is on EVM 32 bytes, 0x-hex, and on Solana the 64 bytes of a keypair, base58: as libraries of
	// other languages take it.
	PrivateKey string

	key sandbox.Account
}

// NewAccount makes an account on a network ("evm", "solana" or its CAIP-2 name) with a random key, and gives
// it dollars.
func (s *Sandbox) NewAccount(t testing.TB, network, dollars string) *Account {
	t.Helper()
	a, err := s.MakeAccount(network, dollars)
	if err != nil {
		t.Fatalf("x402test: %v", err)
	}
	return a
}

// MakeAccount is NewAccount where there is no test.
func (s *Sandbox) MakeAccount(network, dollars string) (*Account, error) {
	amount, err := money.ParseDollars(dollars)
	if err != nil {
		return nil, err
	}
	a, err := s.world.NewAccount(network, uint64(amount))
	if err != nil {
		return nil, err
	}
	return &Account{Network: a.Network, Address: a.Address, TokenAccount: a.TokenAccount,
		PrivateKey: a.PlayKey, key: a}, nil
}

// Client is an HTTP client that pays: a 402 is paid by an account, as far as its play money goes, and asked
// again once. It pays by exact, on its own network. What it was told of the payment is in the answer's
// headers (ReceiptOf reads it). It is a buyer for tests of sellers: it has no limits, keeps nothing, and
// never tries again.
func (s *Sandbox) Client(a *Account) *http.Client {
	nodes := &http.Client{Transport: s.dials}
	return &http.Client{Transport: &buyer{account: a, solana: s.Solana, world: s.world, dials: s.dials,
		registry: x402.NewRegistry(nil),
		evm: evm.New(evm.Options{Signer: evmKey{a.key}, Now: s.world.Now, HTTP: nodes,
			RPC: map[string]string{s.EVM: s.EVMNodeURL}}),
		svm: svm.New(svm.Options{Signer: solanaKey{a.key}, Now: s.world.Now, HTTP: nodes,
			RPC: map[string]string{s.Solana: s.SolanaNodeURL}}),
	}}
}

// ErrNotPaid is what a Client's error wraps where it had nothing to pay a 402 with.
var ErrNotPaid = errors.New("x402test: the answer is 402, and the account cannot pay it")

// Receipt is what a seller or a facilitator says of a payment: Success, ErrorReason, Transaction, Network as
// it was written, and Payer.
type Receipt = wire.Settlement

// ReceiptOf reads the receipt in an answer's headers. It returns nil if there is none that can be read.
func ReceiptOf(answer *http.Response) *Receipt {
	settled, err := wire.ReadSettlement(answer.Header)
	if err != nil {
		return nil
	}
	return settled
}

type buyer struct {
	account  *Account
	solana   string
	world    *sandbox.Sandbox
	dials    *http.Transport
	registry *x402.Registry
	evm      *evm.Exact
	svm      *svm.Exact
}

// RoundTrip asks, pays where it is asked to, and asks again.
func (b *buyer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		if err := errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}
	}
	again := func() *http.Request {
		copied := r.Clone(r.Context())
		if r.Body != nil {
			copied.Body = io.NopCloser(bytes.NewReader(body))
		}
		return copied
	}
	answer, err := b.dials.RoundTrip(again())
	if err != nil || answer.StatusCode != http.StatusPaymentRequired {
		return answer, err
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, x402.MaxBody+1))
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return nil, err
	}
	challenge, err := wire.ReadChallenge(answer.StatusCode, answer.Header, text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotPaid, err)
	}
	payment, err := b.pay(r.Context(), challenge)
	if err != nil {
		return nil, err
	}
	paid := again()
	paid.Header.Set(payment.Header, payment.Value)
	return b.dials.RoundTrip(paid)
}

// pay signs for the first option that the account can pay.
func (b *buyer) pay(ctx context.Context, c *wire.Challenge) (wire.Attachment, error) {
	why := []error{ErrNotPaid}
	for _, r := range c.Accepts {
		if r.Network != b.account.Network {
			why = append(why, fmt.Errorf("%s: the account is on %s", r.NetworkName, b.account.Network))
			continue
		}
		signed, err := b.authorize(ctx, c, r)
		if err != nil {
			why = append(why, err)
			continue
		}
		encoded, err := wire.EncodePayload(c, r, signed.Payload, signed.Extensions)
		if err != nil {
			return wire.Attachment{}, err
		}
		return wire.Attach(c.Dialect, encoded), nil
	}
	return wire.Attachment{}, errors.Join(why...)
}

func (b *buyer) authorize(ctx context.Context, c *wire.Challenge, r x402.Requirement) (onchain.Authorization,
	error) {
	asset, known := b.registry.Asset(r.Network, r.Asset)
	if !known {
		return onchain.Authorization{}, fmt.Errorf("%s has no token %s here", r.NetworkName, r.Asset)
	}
	order := onchain.Order{Requirement: r, Asset: asset, Source: b.account.Address, Validity: r.MaxTimeout,
		Now: b.world.Now(), Extensions: c.Extensions}
	switch {
	case r.Way() != x402.Exact:
		return onchain.Authorization{}, fmt.Errorf("this client does not pay by %s", r.Way())
	case r.Network == b.solana:
		order.Source = b.account.TokenAccount
		return b.svm.Authorize(ctx, order)
	}
	return b.evm.Authorize(ctx, order)
}

// evmKey signs as an EVM account.
type evmKey struct{ sandbox.Account }

func (k evmKey) Address() string { return k.Account.Address }

// Sign implements onchain.Signer.
func (k evmKey) Sign(_ context.Context, d onchain.Draft) (signatures []byte, err error) {
	for _, digest := range d.Signs {
		signature := k.SignDigest([32]byte(digest))
		signatures = append(signatures, signature[:]...)
	}
	return signatures, nil
}

// solanaKey signs as a Solana account.
type solanaKey struct{ sandbox.Account }

func (k solanaKey) Address() string { return k.Account.Address }

// Sign implements onchain.Signer.
func (k solanaKey) Sign(_ context.Context, d onchain.Draft) ([]byte, error) {
	signature := k.SignMessage(d.Signs[0])
	return signature[:], nil
}
