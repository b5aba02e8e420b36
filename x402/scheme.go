package x402

import (
	"strconv"
	"time"

	"x402-wallet/x402/money"
)

// What a payment scheme (evm.Exact, svm.Exact) and the engine exchange. The interface between
// them belongs to package pay; these are its nouns.

// Funds is the third budget layer: what the chain lets the wallet spend of one asset, in its atomic
// units.
type Funds struct {
	Source  string       // whose money it is: the token account (Solana) or address (EVM) that pays
	Address string       // where to send what is missing; "": to Source
	Balance money.Amount // what the account holds
	// what its owner lets the agent spend (SPL delegation, vault); nil when the agent owns the source
	Delegated *money.Amount
	Free      money.Amount // min of both: the cap
	ReadAt    time.Time    // before the question was asked: whatever settled later may not be in the figures

	// EVM: what of Free is not at the agent's own address yet, of which Balance tells, but the agent may move
	// there (Pull); nil: nothing of the kind
	Allowance *OwnerAllowance
	// Permit2 on EVM: what of the payer's it may move; nil: it is not needed
	Permitted *money.Amount

	MaxPayment  *money.Amount // what one payment may be, whatever is free; nil: no such limit
	MaxValidity time.Duration // how long what is signed may be good for; 0: no such limit
	MoreAt      time.Time     // when the chain lets the agent spend more; zero: not by itself
}

// Evidence is what is needed to ask the chain, at any later time, what became of a payment. It is
// stored with the payment before the signed bytes leave.
type Evidence struct {
	Network string       `json:"network"`
	Asset   string       `json:"asset"`
	Payer   string       `json:"payer"` // the agent's address
	PayTo   string       `json:"payTo"`
	Amount  money.Amount `json:"amount"`

	// EVM: nonce of EIP-3009 or Permit2, 0x-hex; of a Pull the account's nonce, decimal
	Nonce       string `json:"nonce,omitempty"`
	ValidBefore int64  `json:"validBefore,omitempty"` // EVM: Unix seconds
	Transaction string `json:"transaction,omitempty"` // EVM, of a Pull: the hash of what was signed
	// EVM: Permit2 or Upto, whose nonces are Permit2's and not the token's; Tempo; "": EIP-3009, or a Pull
	Way         string `json:"way,omitempty"`
	Facilitator string `json:"facilitator,omitempty"` // EVM, Upto: who alone can settle it

	// batch-settlement: the channel, 0x-hex. Of a voucher Nonce is "" and Ceiling what it promises in all,
	// Number how many were signed with it; of a deposit PayTo is the collector that brings it there, and
	// by Permit2 the contract of channels.
	Channel string       `json:"channel,omitempty"`
	Ceiling money.Amount `json:"ceiling,omitzero"`
	Number  uint64       `json:"number,omitempty"`

	// Tempo: what of Amount the network's fee may take, and where it may take any, the transaction's hash
	Fee  money.Amount `json:"fee,omitzero"`
	Hash string       `json:"hash,omitempty"`

	// Solana: our own signature, base58; the transaction's id is the fee payer's
	Signature string `json:"signature,omitempty"`
	// Solana: the token account it spends from; of a Pull: the owner's address
	Source      string `json:"source,omitempty"`
	Destination string `json:"destination,omitempty"` // Solana: the payee's token account
	Memo        string `json:"memo,omitempty"`        // Solana; Tempo: 0x and 64 hex digits
	FeePayer    string `json:"feePayer,omitempty"`    // Solana
	Blockhash   string `json:"blockhash,omitempty"`   // Solana
	// Solana: 0 when nobody said: then it is never called expired
	LastValidBlockHeight uint64 `json:"lastValidBlockHeight,omitempty"`

	// when the payload is expected to have expired, by the wall clock: a hint for when to
	// ask, never a proof
	ExpiresAt time.Time `json:"expiresAt"`
}

// IsPull reports whether the evidence is of a Pull, and not of a payment to a seller.
func (e Evidence) IsPull() bool { return e.Transaction != "" }

// Unique is what a signed payment is known by on its chain: its nonce, or our own signature.
func (e Evidence) Unique() string {
	if e.IsPull() { // whatever it moves: of two with the same nonce only one can happen
		return e.Network + " " + e.Payer + " account nonce " + e.Nonce
	}
	if e.Way == Tempo { // a challenge has one memo, which the seller may accept from several transactions
		return e.Network + " tempo " + e.Payer + " " + e.Memo
	}
	if e.Way != "" { // one space of nonces for all tokens
		return e.Network + " permit2 " + e.Payer + " " + e.Nonce
	}
	if e.IsVoucher() {
		return e.Network + " " + e.Channel + " voucher " + strconv.FormatUint(e.Number, 10)
	}
	if e.Nonce != "" {
		return e.Network + " " + e.Asset + " " + e.Payer + " " + e.Nonce
	}
	return e.Network + " " + e.Signature
}

// StrangeFacilitator is why a person is asked about an upto payment whose facilitator is none of the owner's.
func StrangeFacilitator(address string) string {
	return "up to that may be taken by " + Brief(address) + ", which is none of your facilitators"
}

// IsVoucher reports whether a payment is a promise out of a channel, and moves nothing by itself.
func (e Evidence) IsVoucher() bool { return e.Channel != "" && e.Nonce == "" }

// StatusState is what the chain knows of a payment.
type StatusState string

// Open: it may still happen; nothing is recorded of that. Settled: it happened. Expired: it did not
// and cannot any more. The words are what the ledger keeps and x402_history shows
// (evidence.chainProof): they do not change with a name in this program.
const (
	Open    StatusState = ""
	Settled StatusState = "settled"
	Expired StatusState = "dead"
)

// Status is the chain's answer with its proof. Its JSON is evidence that the ledger keeps.
type Status struct {
	State       StatusState `json:"state"`
	Transaction string      `json:"transaction,omitempty"` // settled: where
	Block       uint64      `json:"block,omitempty"`       // EVM block or Solana slot the answer rests on
	At          time.Time   `json:"at,omitzero"`           // that block's own time, where known
	Note        string      `json:"note,omitempty"`        // in words, for the evidence
	// settled, of a payment that allowed more: what moved; nil: all of it, or not known
	Amount *money.Amount `json:"amount,omitempty"`
	// open: the chain showed, when it was asked, that it has not happened; false where that was not seen
	Unused bool `json:"-"`
}
