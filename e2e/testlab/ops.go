package testlab

import (
	"encoding/json"
	"strconv"
)

// Amounts are in atomic units. Where a mint may be left empty it is the lab's SPL Token mint.

// EVMTransfer is what a transaction moved of the EVM token.
type EVMTransfer struct {
	From, To string
	Amount   uint64 `json:"amount,string"`
}

// SpentNonce is an EIP-3009 nonce that was really used, and the transaction that used it.
type SpentNonce struct{ Nonce, Transaction string }

func (l *Lab) EVMMint(to string, amount uint64) {
	l.t.Helper()
	l.op("evmMint", map[string]any{"to": to, "amount": units(amount)}, nil)
}

func (l *Lab) EVMBalance(address string) uint64 {
	l.t.Helper()
	return l.amount("evmBalance", map[string]any{"address": address})
}

// EVMSpentNonces lists the EIP-3009 nonces that an address has really used, oldest first: how often
// it paid, by the chain's word.
func (l *Lab) EVMSpentNonces(from string) []SpentNonce {
	l.t.Helper()
	return answerOf[struct{ Nonces []SpentNonce }](l, "evmSpentNonces", map[string]any{"from": from}).Nonces
}

func (l *Lab) EVMApprovePermit2(owner string, amount uint64) {
	l.t.Helper()
	l.op("evmApprovePermit2", map[string]any{"owner": owner, "amount": units(amount)}, nil)
}

func (l *Lab) EVMAllowanceOfPermit2(owner string) uint64 {
	l.t.Helper()
	return l.amount("evmAllowanceOfPermit2", map[string]any{"owner": owner})
}

func (l *Lab) EVMInvalidatePermit(owner, nonce string) {
	l.t.Helper()
	l.op("evmInvalidatePermit", map[string]any{"owner": owner, "nonce": nonce}, nil)
}

// EVMSettlePermit brings a payment by Permit2 (the `payload` of a V2 payment) to the chain as an account,
// upto's for an amount; gives the transaction.
func (l *Lab) EVMSettlePermit(payload json.RawMessage, as string, amount uint64) string {
	l.t.Helper()
	return answerOf[struct{ Transaction string }](l, "evmSettlePermit", map[string]any{"payload": payload,
		"as": as, "amount": units(amount)}).Transaction
}

// EVMTransfers lists what a transaction moved; nothing when it failed or is not there.
func (l *Lab) EVMTransfers(transaction string) []EVMTransfer {
	l.t.Helper()
	return answerOf[struct{ Transfers []EVMTransfer }](l, "evmTransfers",
		map[string]any{"transaction": transaction}).Transfers
}

// EVMMine makes blocks; 0 makes as many as it takes for the present to be final.
func (l *Lab) EVMMine(blocks int) {
	l.t.Helper()
	in := map[string]any{}
	if blocks > 0 {
		in["blocks"] = blocks
	}
	l.op("evmMine", in, nil)
}

// EVMIncreaseTime moves the chain's clock on and makes that moment final. When the test ends the
// chain goes back to where it was before, clock and transactions, because a chain ahead of
// everybody's clock refuses all later payments as expired. So tests that use it must not run in
// parallel with others on this lab.
func (l *Lab) EVMIncreaseTime(seconds int) {
	l.t.Helper()
	var out struct{ Snapshot string }
	l.op("evmIncreaseTime", map[string]any{"seconds": seconds}, &out)
	l.t.Cleanup(func() { l.cleanup("evmRevert", map[string]any{"snapshot": out.Snapshot}) })
}

type TokenAccount struct {
	Delegate        string
	Amount          uint64 `json:"amount,string"`
	DelegatedAmount uint64 `json:"delegatedAmount,string"`
}

type TokenChange struct {
	Owner  string
	Change int64 `json:"change,string"`
}

// SVMKey is one of the lab's own Solana keys. Every name has one. Keypair is the content of a
// Solana keypair file.
type SVMKey struct {
	Name, Address string
	Keypair       json.RawMessage
}

func (l *Lab) SVMKey(name string) SVMKey {
	l.t.Helper()
	key := SVMKey{Name: name}
	l.op("svmKey", map[string]any{"name": name}, &key)
	return key
}

func (l *Lab) SVMAirdrop(address string, lamports uint64) {
	l.t.Helper()
	l.op("svmAirdrop", map[string]any{"address": address, "lamports": units(lamports)}, nil)
}

// SVMFund creates an owner's token account where needed, mints to it, and gives its address.
func (l *Lab) SVMFund(owner, mint string, amount uint64) string {
	l.t.Helper()
	return l.account("svmFund", withMint(mint, map[string]any{"owner": owner, "amount": units(amount)}))
}

func (l *Lab) SVMBalance(owner, mint string) uint64 {
	l.t.Helper()
	return l.amount("svmBalance", withMint(mint, map[string]any{"owner": owner}))
}

func (l *Lab) SVMTokenAccount(account string) TokenAccount {
	l.t.Helper()
	return answerOf[TokenAccount](l, "svmTokenAccount", map[string]any{"account": account})
}

// SVMDelegate lets an address spend up to an amount of the token account of the lab key ownerName;
// gives the account.
func (l *Lab) SVMDelegate(ownerName, delegate, mint string, amount uint64) string {
	l.t.Helper()
	return l.account("svmDelegate", withMint(mint, map[string]any{"owner": ownerName, "delegate": delegate,
		"amount": units(amount)}))
}

// SVMRevoke takes the delegation of ownerName's token account back; gives the account.
func (l *Lab) SVMRevoke(ownerName, mint string) string {
	l.t.Helper()
	return l.account("svmRevoke", withMint(mint, map[string]any{"owner": ownerName}))
}

// SVMNewMint makes a Token-2022 mint with extensions (e2e/lab/parties/token2022.mjs); gives its address.
func (l *Lab) SVMNewMint(extensions map[string]any) string {
	l.t.Helper()
	return answerOf[struct{ Mint string }](l, "svmNewMint", map[string]any{"extensions": extensions}).Mint
}

func (l *Lab) SVMPause(mint string) { l.op("svmPause", map[string]any{"mint": mint}, nil) }

// SVMSetFee sets a mint's transfer fee, in force two epochs later.
func (l *Lab) SVMSetFee(mint string, basisPoints int) {
	l.t.Helper()
	l.op("svmSetFee", map[string]any{"mint": mint, "basisPoints": basisPoints}, nil)
}

// SVMRequireMemo makes the token account of the lab key ownerName refuse what comes without a memo.
func (l *Lab) SVMRequireMemo(ownerName, mint string) {
	l.t.Helper()
	l.op("svmRequireMemo", map[string]any{"owner": ownerName, "mint": mint}, nil)
}

// SVMFreeze freezes a token account, as the issuer of a stablecoin can.
func (l *Lab) SVMFreeze(account string) { l.op("svmFreeze", map[string]any{"account": account}, nil) }
func (l *Lab) SVMThaw(account string)   { l.op("svmThaw", map[string]any{"account": account}, nil) }

// SVMChanges lists what a transaction changed; nothing when it failed or is not there.
func (l *Lab) SVMChanges(transaction string) []TokenChange {
	l.t.Helper()
	return answerOf[struct{ Changes []TokenChange }](l, "svmChanges",
		map[string]any{"transaction": transaction}).Changes
}

// Part names a part of the lab that can be shut off.
type Part string

const (
	PartEVM          Part = "evm" // the node: the facilitators still reach it when it is shut off
	PartFacilitator0 Part = "facilitator0"
	PartFacilitator1 Part = "facilitator1"
	PartSeller       Part = "seller"
)

func facilitatorPart(i int) Part { return []Part{PartFacilitator0, PartFacilitator1}[i] }

// StopPart makes a part refuse connections, until StartPart or the end of the test.
func (l *Lab) StopPart(part Part) {
	l.t.Helper()
	l.op("stopPart", map[string]any{"part": part}, nil)
	l.startAfter(part)
}

func (l *Lab) startAfter(part Part) {
	l.t.Cleanup(func() { l.cleanup("startPart", map[string]any{"part": part}) })
}

// Request is what a seller was asked. Header names are in lower case.
type Request struct {
	Headers map[string]string
}

// FacilitatorCall is what a facilitator was asked. Answer is the true one, whatever was sent.
type FacilitatorCall struct {
	Op              string
	Request, Answer json.RawMessage
}

// SellerLog is what a seller was asked, oldest first.
func (l *Lab) SellerLog(part Part) []Request {
	l.t.Helper()
	return answerOf[struct{ Entries []Request }](l, "log", map[string]any{"part": part}).Entries
}

// FacilitatorLog is what the i-th facilitator was asked, oldest first.
func (l *Lab) FacilitatorLog(i int) []FacilitatorCall {
	l.t.Helper()
	return answerOf[struct{ Entries []FacilitatorCall }](l, "log",
		map[string]any{"part": facilitatorPart(i)}).Entries
}

// ResetLogs empties the logs of all parties and ends all faults.
func (l *Lab) ResetLogs() { l.op("resetLogs", struct{}{}, nil) }

func answerOf[V any](l *Lab, op string, in any) (out V) {
	l.t.Helper()
	l.op(op, in, &out)
	return out
}

func (l *Lab) amount(op string, in any) uint64 {
	l.t.Helper()
	var out struct {
		Amount uint64 `json:"amount,string"`
	}
	l.op(op, in, &out)
	return out.Amount
}

func (l *Lab) account(op string, in any) string {
	l.t.Helper()
	return answerOf[struct{ Account string }](l, op, in).Account
}

// units writes an amount as the operations take it: a JSON number would lose digits in JavaScript.
func units(amount uint64) string { return strconv.FormatUint(amount, 10) }

func withMint(mint string, in map[string]any) map[string]any {
	if mint != "" {
		in["mint"] = mint
	}
	return in
}

// cleanup undoes something after a test; others must not suffer from it, so a failure fails the
// test.
func (l *Lab) cleanup(op string, in any) {
	if err := l.tryOp(op, in, nil); err != nil {
		l.t.Errorf("lab %s: %v", op, err)
	}
}
