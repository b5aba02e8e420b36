package signer

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"

	"x402-wallet/internal/child"
	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// protocol is the version of what a command is asked (docs/rules.md).
const protocol = 1

// maxAnswer bounds what a command answers, in bytes: a signature in hexadecimal has 130.
const maxAnswer = 16 << 10

// maxSaid bounds what of its standard error the owner is shown, in characters.
const maxSaid = 400

// command is a program of the owner's. It is started for each question: one line of JSON on stdin, one answer
// on stdout.
type command struct {
	name    string
	rules   config.Signer
	program child.Program
	said    func(string)
}

// question is what it is asked.
type question struct {
	Version int    `json:"version"`
	Op      string `json:"op"` // address | sign
	Signer  string `json:"signer"`
	Chain   string `json:"chain"` // evm | solana
	// The rest is for sign.
	Address string      `json:"address,omitempty"` // of the key that is to sign
	Kind    wallet.Kind `json:"kind,omitempty"`    // what payload is
	// Payload is what is signed, to be shown to a person: an object of EIP-712, a text, or a transaction or
	// another message in hexadecimal.
	Payload any `json:"payload,omitempty"`
	// Exactly these bytes are signed, in hexadecimal: of EVM the digest, by ECDSA; of Solana the message, by
	// Ed25519.
	Digest  string `json:"digest,omitempty"`
	Message string `json:"message,omitempty"`
}

// answer is what it says.
type answer struct {
	Version int    `json:"version"`
	Address string `json:"address"`
	// instead of the address, in hexadecimal: as in DER, or its bytes alone
	PublicKey string `json:"publicKey"`
	Signature string `json:"signature"` // in hexadecimal: r ‖ s, r ‖ s ‖ v or DER of EVM, 64 bytes of Solana
	Error     string `json:"error"`     // why not; ours to show, bounded
}

func (c command) address(ctx context.Context) (string, error) {
	a, err := c.ask(ctx, question{Op: "address"})
	if err != nil || a.PublicKey == "" {
		return a.Address, err
	}
	key, err := hex.DecodeString(strings.TrimPrefix(a.PublicKey, "0x"))
	if err != nil {
		return "", refused("answers with a public key that is not in hexadecimal")
	}
	if address, err := addressOf(c.rules.Chain, key); err == nil {
		return address, nil
	}
	return addressOfSPKI(key, c.rules.Chain)
}

func (c command) sign(ctx context.Context, o wallet.Order) ([]byte, error) {
	q := question{Op: "sign", Address: c.rules.Address, Kind: o.Kind, Payload: hex.EncodeToString(o.Payload)}
	switch o.Kind {
	case wallet.TypedData:
		q.Payload = json.RawMessage(o.Payload)
	case wallet.Text:
		q.Payload = string(o.Payload)
	}
	if o.Chain == wallet.ChainEVM {
		q.Digest = hex.EncodeToString(o.Digest[:])
	} else {
		q.Message = hex.EncodeToString(o.Payload)
	}
	a, err := c.ask(ctx, q)
	if err != nil {
		return nil, err
	}
	signature, err := hex.DecodeString(strings.TrimPrefix(a.Signature, "0x"))
	if err != nil || len(signature) == 0 {
		return nil, refused("answers with a signature that is not in hexadecimal")
	}
	if o.Chain == wallet.ChainEVM && len(signature) > 65 {
		return fromDER(signature)
	}
	return signature, nil
}

func (c command) ask(ctx context.Context, q question) (a answer, err error) {
	q.Version, q.Signer, q.Chain = protocol, c.name, c.rules.Chain
	line, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	out, _, err := c.program.Ask(ctx, append(line, '\n'), child.Limits{Answer: maxAnswer})
	if complaint, ok := errors.AsType[*child.Complaint](err); ok && c.said != nil {
		if said := strings.TrimSpace(complaint.Said); said != "" {
			c.said(x402.BriefTo(said, maxSaid))
		}
	}
	out = bytes.TrimSpace(out)
	switch exit, failed := errors.AsType[*exec.ExitError](err); {
	case errors.Is(err, child.ErrTooLong):
		return a, refused("answers with more than %d bytes", maxAnswer)
	case errors.Is(err, child.ErrUnconfined):
		return a, refused("is not started: sandbox = true, and here it cannot be confined")
	case failed && len(out) == 0:
		return a, refused("failed: %s", exit.ProcessState) // its standard error is for its owner alone
	case err != nil && !failed:
		return a, refused("could not be started, or ended without its answer")
	}
	if err := x402.DecodeStrict(out, maxAnswer, &a); err != nil || a.Version != protocol {
		return answer{}, refused(`answers with something else than {"version":%d,…} in JSON`, protocol)
	}
	if a.Error != "" {
		return answer{}, refused("refuses: %s", x402.Quote(a.Error))
	}
	return a, nil
}
