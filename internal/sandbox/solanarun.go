package sandbox

import (
	"crypto/sha256"
	"fmt"

	"github.com/gagliardetto/solana-go"
)

// runError is why a Solana transaction does not execute, as the cluster tells it.
type runError struct {
	step   int    // the index of the instruction; wholeTransaction for none
	reason string // "" where the program has a number for it
	custom int    // that number
}

const (
	wholeTransaction = -1
	alreadyProcessed = "AlreadyProcessed"
)

func failed(reason string) error { return &runError{step: wholeTransaction, reason: reason} }

// The token program's numbers (spl-token error.rs).
const (
	insufficientFunds = 0x1
	mintMismatch      = 0x3
	ownerMismatch     = 0x4
	accountFrozen     = 0x11
	decimalsMismatch  = 0x12
)

func (e *runError) Error() string {
	switch {
	case e.step == wholeTransaction:
		return e.reason
	case e.reason != "":
		return fmt.Sprintf("instruction %d: %s", e.step, e.reason)
	}
	return fmt.Sprintf("instruction %d: custom program error: 0x%x", e.step, e.custom)
}

// shown is the error as JSON-RPC has it.
func (e *runError) shown() any {
	switch {
	case e.step == wholeTransaction:
		return e.reason
	case e.reason != "":
		return map[string]any{"InstructionError": []any{e.step, e.reason}}
	}
	return map[string]any{"InstructionError": []any{e.step, map[string]int{"Custom": e.custom}}}
}

// execution is a transaction being run: what it has changed so far is kept apart.
type execution struct {
	chain   *solanaChain
	step    int
	changed map[solana.PublicKey]*tokenAccount
	moved   Settlement // by the last TransferChecked
}

// run executes without keeping anything: signatures (from the given one on), life of the blockhash,
// first time, then every instruction.
func (c *solanaChain) run(tx *transaction, firstSignature int) (*execution, error) {
	for i := firstSignature; i < len(tx.Signatures); i++ {
		if !tx.signed(i) {
			return nil, failed("SignatureFailure")
		}
	}
	if !c.alive(solana.PublicKey(tx.Message.RecentBlockhash), c.slot()) {
		return nil, failed("BlockhashNotFound")
	}
	if c.messages[sha256.Sum256(tx.message)] {
		return nil, failed(alreadyProcessed)
	}
	e := &execution{chain: c, changed: map[solana.PublicKey]*tokenAccount{}}
	for i, ix := range tx.steps {
		e.step = i
		if err := e.instruction(ix); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *execution) instruction(ix step) error {
	switch ix.program {
	case solana.ComputeBudget:
		isLimit := len(ix.data) == 5 && ix.data[0] == 2
		isPrice := len(ix.data) == 9 && ix.data[0] == 3
		if isLimit || isPrice {
			return nil
		}
		return e.other("InvalidInstructionData")
	case solana.MemoProgramID:
		for _, account := range ix.accounts {
			if !account.IsSigner {
				return e.other("MissingRequiredSignature")
			}
		}
		return nil
	case solana.TokenProgramID:
		return e.token(ix)
	}
	return e.other("UnsupportedProgramId")
}

// token runs the four instructions of the token program that payments and delegations are made of.
func (e *execution) token(ix step) error {
	if len(ix.data) == 0 {
		return e.other("InvalidInstructionData")
	}
	switch ix.data[0] {
	case 12: // TransferChecked: source, mint, destination, authority
		if len(ix.data) == 10 && len(ix.accounts) == 4 {
			return e.move(ix)
		}
	case 4: // Approve: source, delegate, owner
		if len(ix.data) == 9 && len(ix.accounts) == 3 {
			return e.approve(ix.accounts[0], ix.accounts[2], ix.accounts[1].PublicKey, u64(ix.data[1:]))
		}
	case 13: // ApproveChecked: source, mint, delegate, owner
		if len(ix.data) == 10 && len(ix.accounts) == 4 {
			if err := e.checked(ix); err != nil {
				return err
			}
			return e.approve(ix.accounts[0], ix.accounts[3], ix.accounts[2].PublicKey, u64(ix.data[1:]))
		}
	case 5: // Revoke: source, owner
		if len(ix.data) == 1 && len(ix.accounts) == 2 {
			return e.approve(ix.accounts[0], ix.accounts[1], solana.PublicKey{}, 0)
		}
	}
	return e.other("InvalidInstructionData")
}

// checked compares mint and decimals, as the instructions named so promise.
func (e *execution) checked(ix step) error {
	if ix.accounts[1].PublicKey != e.chain.mint {
		return e.custom(mintMismatch)
	}
	if ix.data[9] != e.chain.asset.Decimals {
		return e.custom(decimalsMismatch)
	}
	return nil
}

func (e *execution) move(ix step) error {
	if err := e.checked(ix); err != nil {
		return err
	}
	from, to, by, amount := ix.accounts[0], ix.accounts[2], ix.accounts[3], u64(ix.data[1:])
	source, err := e.open(from)
	if err != nil {
		return err
	}
	if err := e.spend(source, by, amount); err != nil {
		return err
	}
	destination, err := e.open(to)
	if err != nil {
		return err
	}
	if source.mint != e.chain.mint || destination.mint != e.chain.mint {
		return e.custom(mintMismatch)
	}
	if destination.frozen {
		return e.custom(accountFrozen)
	}
	source.amount -= amount
	destination.amount += amount
	e.moved = Settlement{Payer: from.PublicKey.String(), Signer: by.PublicKey.String(),
		PayTo: to.PublicKey.String(), Amount: amount}
	return nil
}

// spend asks whether the authority may take the amount, and takes a delegate's from what was
// delegated.
func (e *execution) spend(source *tokenAccount, by *solana.AccountMeta, amount uint64) error {
	switch {
	case source.frozen:
		return e.custom(accountFrozen)
	case source.amount < amount:
		return e.custom(insufficientFunds)
	case !by.IsSigner:
		return e.other("MissingRequiredSignature")
	case source.delegate == by.PublicKey && !by.PublicKey.IsZero():
		if source.delegated < amount {
			return e.custom(insufficientFunds)
		}
		source.delegated -= amount
		if source.delegated == 0 {
			source.delegate = solana.PublicKey{}
		}
	case source.owner != by.PublicKey:
		return e.custom(ownerMismatch)
	}
	return nil
}

func (e *execution) approve(source, owner *solana.AccountMeta, delegate solana.PublicKey,
	amount uint64) error {
	account, err := e.open(source)
	switch {
	case err != nil:
		return err
	case account.frozen:
		return e.custom(accountFrozen)
	case account.owner != owner.PublicKey:
		return e.custom(ownerMismatch)
	case !owner.IsSigner:
		return e.other("MissingRequiredSignature")
	}
	account.delegate, account.delegated = delegate, amount
	return nil
}

// open takes a token account for writing.
func (e *execution) open(at *solana.AccountMeta) (*tokenAccount, error) {
	k := at.PublicKey
	if e.changed[k] == nil {
		account := e.chain.accounts[k]
		switch {
		case account == nil:
			return nil, e.other("InvalidAccountData")
		case !at.IsWritable:
			return nil, e.other("ReadonlyDataModified")
		}
		copied := *account
		e.changed[k] = &copied
	}
	return e.changed[k], nil
}

func (e *execution) custom(n int) error { return &runError{step: e.step, custom: n} }

func (e *execution) other(why string) error { return &runError{step: e.step, reason: why} }
