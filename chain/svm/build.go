package svm

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/x402"
)

// What the reference client asks of the runtime (@x402/svm 2.27, exact/client).
const (
	unitLimit = 20_000 // compute units; a transfer with a memo takes about 15,000
	unitPrice = 1      // micro-lamports per unit
)

// plan is what a transaction shall say.
type plan struct {
	parties
	agent, source, destination, program solana.PublicKey
	amount                              uint64
	decimals                            uint8
	limit                               uint32
	price                               uint64
	blockhash                           solana.Hash
	lastValid                           uint64 // the last block height at which it can land
	validBlocks                         int    // at most so many blocks from now
}

// makeUnique makes the transaction differ from every other of ours: two with the same words are one
// transaction to the chain, and the second payment would never happen (D21). Where the seller
// leaves the memo to us it is 16 random bytes in hex, and the rest is as the reference client's.
// Otherwise, with the seller's memo and in the form without memo, the compute budget carries 30
// random bits: up to 65,535 units and up to 16,383 micro-lamports a unit more. That is far below
// what facilitators accept (5,000,000 micro-lamports), and costs the fee payer at most 1,402
// lamports beside the 10,000 of two signatures. The accidental twin, one in 2^30, the ledger finds
// by its signature.
//
// V1 has no memo unless the seller wants one: facilitators of x402 1.2.0 take exactly three
// instructions, and newer ones take three as well.
func (p *plan) makeUnique(r x402.Requirement, random io.Reader) error {
	p.limit, p.price = unitLimit, unitPrice
	var bits [16]byte
	if _, err := io.ReadFull(random, bits[:]); err != nil {
		return fmt.Errorf("read random bytes: %w", err)
	}
	if p.memo == "" && r.Version != 1 {
		p.memo = hex.EncodeToString(bits[:])
		return nil
	}
	p.limit += uint32(binary.BigEndian.Uint16(bits[:]))
	p.price += uint64(binary.BigEndian.Uint16(bits[2:]) >> 2)
	return nil
}

// message builds the version 0 message in the reference client's order: limit, price, transfer,
// memo. TransferChecked is made by hand because solana-go's takes the classic token program for
// granted.
func (p *plan) message() ([]byte, error) {
	transfer := append(binary.LittleEndian.AppendUint64([]byte{opTransferChecked}, p.amount), p.decimals)
	instructions := []solana.Instruction{
		solana.NewInstruction(computeBudget, nil, binary.LittleEndian.AppendUint32([]byte{opUnitLimit},
			p.limit)),
		solana.NewInstruction(computeBudget, nil, binary.LittleEndian.AppendUint64([]byte{opUnitPrice},
			p.price)),
		solana.NewInstruction(p.program, solana.AccountMetaSlice{
			solana.Meta(p.source).WRITE(), solana.Meta(p.mint), solana.Meta(p.destination).WRITE(),
			solana.Meta(p.agent).SIGNER(),
		}, transfer),
	}
	if p.memo != "" {
		instructions = append(instructions, solana.NewInstruction(memoProgram, nil, []byte(p.memo)))
	}
	tx, err := solana.NewTransaction(instructions, p.blockhash, solana.TransactionPayer(p.feePayer),
		solana.TransactionMessageVersion(solana.MessageVersionV0))
	if err != nil {
		return nil, err
	}
	return tx.Message.MarshalBinary()
}

// serialize puts two signatures before a message: the fee payer's, which is the facilitator's to
// fill in, and ours.
func serialize(ours [64]byte, message []byte) []byte {
	transaction := append(make([]byte, 0, 1+2*64+len(message)), 2)
	transaction = append(transaction, make([]byte, 64)...)
	return append(append(transaction, ours[:]...), message...)
}

// check reads the message as a stranger would and compares every word of it, what comes from the
// order with the order itself (B11). What it cannot compare with an order, the randomness and the
// blockhash, it compares with the plan.
func (p *plan) check(o x402.Order, message []byte) error {
	t, err := DecodeMessage(message)
	if err != nil {
		return err
	}
	destination, err := ATA(o.Requirement.PayTo, o.Asset.Address, o.Asset.Token2022)
	if err != nil {
		return err
	}
	feePayer := o.Requirement.ExtraString("feePayer")
	if feePayer == "" {
		feePayer = o.FeePayer
	}
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	for _, word := range []struct{ what, got, want string }{
		{"program", t.Program, programOf(o.Asset.Token2022).String()},
		{"amount", t.Amount.String(), o.Requirement.Amount.String()},
		{"decimals", number(uint64(t.Decimals)), number(uint64(o.Asset.Decimals))},
		{"mint", t.Mint, o.Requirement.Asset},
		{"source", t.Source, o.Source},
		{"destination", t.Destination, destination},
		{"authority", t.Authority, p.agent.String()}, // the second and last signer: Decode saw to it
		{"fee payer", t.FeePayer, feePayer},          // the first
		{"memo", strconv.FormatBool(t.HasMemo) + t.Memo, strconv.FormatBool(p.memo != "") + p.memo},
		{"blockhash", t.Blockhash, p.blockhash.String()},
		{"unit limit", number(uint64(t.UnitLimit)), number(uint64(p.limit))},
		{"unit price", number(t.UnitPrice), number(p.price)},
	} {
		if word.got != word.want {
			return fmt.Errorf("its %s is %q, wanted is %q", word.what, word.got, word.want)
		}
	}
	if wanted := o.Requirement.ExtraString("memo"); wanted != "" && t.Memo != wanted {
		return errors.New("its memo is not the seller's")
	}
	return nil
}
