package sandbox

import (
	"encoding/json"
	"math"
	"unicode/utf8"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/x402"
)

const (
	maxUnitPrice = 5_000_000 // micro-lamports a compute unit (reference facilitator 2.27)
	maxUnits     = 400_000
	minSteps     = 3
	maxSteps     = 6
	maxMemo      = 256 // bytes (specs/schemes/exact/scheme_exact_svm.md)
)

// verifySolana is the reference facilitator's list, and stricter where the
// specification is: the fee payer is in no instruction's accounts, and nobody but he and the payer
// signs.
func (s *Sandbox) verifySolana(q *Submission) (*transaction, error) {
	var payload struct {
		Transaction string `json:"transaction"`
	}
	if x402.DecodeStrict(q.Payload, x402.MaxBody, &payload) != nil || !hasOnly(q.Payload, "transaction") {
		return nil, Reason("invalid_payload")
	}
	if q.Terms.ExtraString("feePayer") != s.FeePayer {
		return nil, Reason("invalid_exact_svm_fee_payer_not_managed_by_facilitator")
	}
	tx, err := decodeTransaction(payload.Transaction)
	if err != nil {
		return nil, Reason("invalid_exact_svm_payload_transaction_could_not_be_decoded")
	}
	for _, check := range []func(*Submission, *transaction) error{s.checkSigners, s.checkSteps,
		s.checkTransfer, checkMemos} {
		if err := check(q, tx); err != nil {
			return nil, err
		}
	}
	s.solana.mu.Lock()
	defer s.solana.mu.Unlock()
	if _, err := s.solana.run(tx, 1); err != nil {
		return nil, solanaReason(err)
	}
	return tx, nil
}

// hasOnly reports whether a JSON object has this one key and no other.
func hasOnly(raw json.RawMessage, name string) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(raw, &members) == nil && len(members) == 1 && members[name] != nil
}

func (s *Sandbox) checkSigners(_ *Submission, tx *transaction) error {
	switch {
	case tx.Message.AccountKeys[0] != s.feeKey.PublicKey():
		return Reason("invalid_exact_svm_fee_payer_mismatch")
	case len(tx.Signatures) != 2:
		return Reason("invalid_exact_svm_payload_excessive_signers")
	case !tx.Signatures[0].IsZero():
		return Reason("invalid_exact_svm_payload_signature_invalid") // the fee payer's place must be empty
	case !tx.signed(1):
		return Reason("invalid_exact_svm_payload_signature_invalid")
	}
	return nil
}

func (s *Sandbox) checkSteps(_ *Submission, tx *transaction) error {
	steps := tx.steps
	if len(steps) < minSteps || len(steps) > maxSteps {
		return Reason("invalid_exact_svm_payload_transaction_instructions_length")
	}
	limit, price := steps[0], steps[1]
	switch {
	case limit.program != solana.ComputeBudget || len(limit.data) != 5 || limit.data[0] != 2 ||
		len(limit.accounts) != 0:
		return Reason("invalid_exact_svm_payload_transaction_instructions_compute_limit_instruction")
	case u64(append(limit.data[1:5:5], 0, 0, 0, 0)) > maxUnits:
		return Reason("invalid_exact_svm_payload_transaction_instructions_compute_limit_instruction_too_high")
	case price.program != solana.ComputeBudget || len(price.data) != 9 || price.data[0] != 3 ||
		len(price.accounts) != 0:
		return Reason("invalid_exact_svm_payload_transaction_instructions_compute_price_instruction")
	case u64(price.data[1:]) > maxUnitPrice:
		return Reason("invalid_exact_svm_payload_transaction_instructions_compute_price_instruction_too_high")
	}
	for _, step := range steps {
		for _, account := range step.accounts {
			if account.PublicKey == s.feeKey.PublicKey() {
				return Reason("invalid_exact_svm_payload_transaction_fee_payer_transferring_funds")
			}
		}
	}
	return nil
}

func (s *Sandbox) checkTransfer(q *Submission, tx *transaction) error {
	step := tx.steps[2]
	isToken := step.program == solana.TokenProgramID || step.program == solana.Token2022ProgramID
	if !isToken || len(step.data) != 10 || step.data[0] != 12 || len(step.accounts) != 4 {
		return Reason("invalid_exact_svm_payload_no_transfer_instruction")
	}
	payTo, err := parseKey(q.Terms.PayTo)
	mint, errMint := parseKey(q.Terms.Asset)
	if err != nil || errMint != nil {
		return Reason("invalid_payment_requirements")
	}
	wanted, fits := q.Terms.Amount.Uint64()
	switch {
	case !step.accounts[3].IsSigner:
		return Reason("invalid_exact_svm_payload_signature_invalid")
	case step.accounts[1].PublicKey != mint:
		return Reason("invalid_exact_svm_payload_mint_mismatch")
	case step.accounts[2].PublicKey != associatedAccount(payTo, step.program, mint):
		return Reason("invalid_exact_svm_payload_recipient_mismatch")
	case !fits || wanted == math.MaxUint64 || u64(step.data[1:9]) != wanted:
		return Reason("invalid_exact_svm_payload_amount_mismatch")
	}
	return nil
}

// checkMemos: what follows the transfer is memos, one at most, and the seller's if he asked for
// one.
func checkMemos(q *Submission, tx *transaction) error {
	wanted := q.Terms.ExtraString("memo")
	rest := tx.steps[3:]
	for _, step := range rest {
		if step.program != solana.MemoProgramID {
			return Reason("invalid_exact_svm_payload_unknown_optional_instruction")
		}
		if len(step.data) > maxMemo || !utf8.Valid(step.data) || len(step.accounts) != 0 {
			return Reason("invalid_exact_svm_payload_memo_mismatch")
		}
	}
	switch {
	case len(rest) > 1 || (wanted != "" && len(rest) != 1):
		return Reason("invalid_exact_svm_payload_memo_count")
	case wanted != "" && string(rest[0].data) != wanted:
		return Reason("invalid_exact_svm_payload_memo_mismatch")
	}
	return nil
}
