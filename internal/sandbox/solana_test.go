package sandbox

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/x402/wire"
)

// vector is the reference client's transaction "exact-svm with the seller's memo" (@x402/svm
// 2.27.0, public test keys).
const vector = "" +
	"AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAACpcXbCap6P" +
	"UI7kJAvS9nSAuZKOAH4bV24XKYR48emyN4KCDygP/wDLkJsnPFvOCeJ7AqklU5lCVw+lQNuNf2wJgAIBBAjPHwZnA01T2C3H" +
	"tlAjTEVC4T/PLYANrujgwBsph3Jm2nm1Vi6P5lT5QHixEuipi6eQH4U65pW+1+DjkQutBJZkhym1sSR1ISgbpclL8xwEkaOR" +
	"7MUUttiwAKDWSvmKgAXZqbH34VhoNXoprF9rHlAgOKsXbEMcNFjHgADoL1BkNTtELLORIVfxOpM9ATQoLQMrX/7NAaLb8bd5" +
	"BgjfAC6nAwZGb+UhFzL/7K26csOb57yM5bvF9xJrLEObOkAAAAAFSlNamSkhBk0k6HFg2jh8fDW13bySu4HkH6hAQQVEjQbd" +
	"9uHXZaGT2cvhRs7reawctIXtX1s3kTqM9YV+/wCpyV29u5s5tb9yxXaxLxIjPB/vcv+BhIj3ODTS8YLYlusEBQAFAiBOAAAF" +
	"AAkDAQAAAAAAAAAHBAMEAgEKDOgDAAAAAAAABgYAEHBpXzNhYmMxMjNkZWY0NTYA"

func TestReadsTheReferenceTransaction(t *testing.T) {
	tx := must.Get(decodeTransaction(vector))(t)
	require.True(t, tx.Message.IsVersioned())
	require.True(t, tx.signed(1))
	require.False(t, tx.signed(0))
	require.Equal(t, "EwWqGE4ZFKLofuestmU4LDdK7XM1N4ALgdZccwYugwGd", tx.Message.AccountKeys[0].String())
	require.Equal(t, "EZ3rST5dvHmbanh75jc4PuLfV96vp9fEYBVeNk4FfM1k", tx.Message.RecentBlockhash.String())
	transfer := tx.steps[2]
	require.Equal(t, solana.TokenProgramID, transfer.program)
	payTo, mint := solana.MPK("2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4"),
		solana.MPK("4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU")
	payer := tx.Message.AccountKeys[1]
	require.Equal(t, associatedAccount(payTo, solana.TokenProgramID, mint), transfer.accounts[2].PublicKey)
	require.Equal(t, associatedAccount(payer, solana.TokenProgramID, mint), transfer.accounts[0].PublicKey)
	metas := must.Get(tx.Message.AccountMetaList())(t)
	isWritable := []bool{}
	for _, account := range metas[:5] {
		isWritable = append(isWritable, account.IsWritable)
	}
	require.Equal(t, []bool{true, false, true, true, false}, isWritable)

	raw, _ := base64.StdEncoding.DecodeString(vector)
	require.Equal(t, vector, tx.MustToBase64())
	for n := range raw { // cut anywhere it is no transaction
		require.Error(t, must.Err(parseTransaction(raw[:n])))
	}
	tables := append(bytes.Clone(raw[:len(raw)-1]), 1)
	tables = append(append(tables, make([]byte, 32)...), 1, 0, 0) // one table, one account that is written
	version1, twice := bytes.Clone(raw), bytes.Clone(raw)
	version1[1+2*64] = 0x81
	copy(twice[1+2*64+5:], raw[1+2*64+5+32:][:32])
	for name, bad := range map[string][]byte{"a byte behind the end": append(bytes.Clone(raw), 0),
		"a lookup table": tables, "version 1": version1, "a key twice": twice,
		"a long length":       append([]byte{0x82, 0}, raw[1:]...),
		"a missing signature": append([]byte{1}, raw[65:]...)} {
		require.Error(t, must.Err(parseTransaction(bad)), name)
	}
}

func TestKeys(t *testing.T) {
	for _, bad := range []string{"", "1", "0OIl", "111111111111111111111111111111111",
		"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", "Tokenkeg"} {
		t.Run(bad, func(t *testing.T) {
			require.Error(t, must.Err(parseKey(bad)), bad)
		})
	}
}

func TestSolanaPaymentByDelegate(t *testing.T) {
	s := start(t, Options{})
	agent := newKey()
	account := s.Delegate(agent.PublicKey().String(), 2*mill)
	c := testworld.Challenge(t, s.SellerURL+"/solana")
	for left := uint64(1); left < 2; left-- {
		payload := transactionPayload(newDraft(t, s, agent, account, mill).with(func(d *draft) {
			d.memo = []string{"last", "first"}[left]
		}).wire(agent))
		answer := pay(t, s, "/solana", c, payload)
		require.Equal(t, 200, answer.Status, answer.Body)
		require.EqualValues(t, left*mill, s.Delegated(account))
		require.Equal(t, "duplicate_settlement", pay(t, s, "/solana", c, payload).Why(t))
	}
	require.Equal(t, tokenAccount{owner: solana.MPK(s.Owner), mint: s.solana.mint, amount: purse - 2*mill},
		s.solana.account(account), "the delegate is gone at zero")
	require.EqualValues(t, 2*mill, s.Balance(s.solana.associated(solana.MPK(s.PayToSolana)).String()))
	require.Equal(t, agent.PublicKey().String(), s.Settlements()[0].Signer)
	require.Equal(t, account, s.Settlements()[0].Payer)

	// V1 without a memo, from an account of the agent's own
	own := s.Fund(agent.PublicKey().String(), mill)
	c = testworld.Challenge(t, s.SellerURL+"/v1/solana")
	answer := pay(t, s, "/v1/solana", c,
		transactionPayload(newDraft(t, s, agent, own, mill).with(func(d *draft) {
			d.memo, d.legacy = "", true
		}).wire(agent)))
	require.Equal(t, 200, answer.Status, answer.Body)
	require.Zero(t, s.Balance(own))
}

func (d *draft) with(change func(*draft)) *draft {
	change(d)
	return d
}

func TestSolanaRefuses(t *testing.T) {
	s := start(t, Options{})
	agent, stranger := newKey(), newKey()
	account := s.Delegate(agent.PublicKey().String(), mill-1)
	rich := newKey()
	richAccount := s.Fund(rich.PublicKey().String(), USDC)
	c := testworld.Challenge(t, s.SellerURL+"/solana")
	richDraft := func(change func(*draft)) string {
		return newDraft(t, s, rich, richAccount, mill).with(change).wire(rich)
	}
	for _, row := range []struct{ name, wire, reason string }{
		{"more than delegated", newDraft(t, s, agent, account, mill).wire(agent),
			"transaction_simulation_failed: instruction 2: custom program error: 0x1"},
		{"no delegate", newDraft(t, s, stranger, account, mill).wire(stranger),
			"transaction_simulation_failed: instruction 2: custom program error: 0x4"},
		{"no account", newDraft(t, s, stranger, s.solana.associated(stranger.PublicKey()).String(),
			mill).wire(stranger), "transaction_simulation_failed: instruction 2: InvalidAccountData"},
		{"too much", richDraft(func(d *draft) { d.amount++ }), "invalid_exact_svm_payload_amount_mismatch"},
		{"too little", richDraft(func(d *draft) { d.amount-- }), "invalid_exact_svm_payload_amount_mismatch"},
		{"another payee", richDraft(func(d *draft) {
			d.destination = solana.MPK(account)
		}), "invalid_exact_svm_payload_recipient_mismatch"},
		{"another mint", richDraft(func(d *draft) {
			d.mint = solana.SystemProgramID
		}), "invalid_exact_svm_payload_mint_mismatch"},
		{"another fee payer", richDraft(func(d *draft) {
			d.feePayer = stranger.PublicKey()
		}), "invalid_exact_svm_fee_payer_mismatch"},
		{"signed by another", newDraft(t, s, rich, richAccount, mill).wire(stranger),
			"invalid_exact_svm_payload_signature_invalid"},
		{"the fee payer's money", richDraft(func(d *draft) {
			d.authority = 0
		}), "invalid_exact_svm_payload_transaction_fee_payer_transferring_funds"},
		{"an authority that does not sign", richDraft(func(d *draft) {
			d.authority = 5
		}), "invalid_exact_svm_payload_signature_invalid"},
		{"a high price", richDraft(func(d *draft) {
			d.price = maxUnitPrice + 1
		}), "invalid_exact_svm_payload_transaction_instructions_compute_price_instruction_too_high"},
		{"two memos", richDraft(func(d *draft) {
			d.more = []draftStep{{program: solana.MemoProgramID, data: []byte("x")}}
		}), "invalid_exact_svm_payload_memo_count"},
		{"a second transfer", richDraft(func(d *draft) {
			d.more = []draftStep{{program: solana.TokenProgramID, data: []byte{12}}}
		}), "invalid_exact_svm_payload_unknown_optional_instruction"},
		{"a blockhash nobody gave", richDraft(func(d *draft) {
			d.blockhash = stranger.PublicKey()
		}), "transaction_simulation_failed: BlockhashNotFound"},
		{"no base64", "!", "invalid_exact_svm_payload_transaction_could_not_be_decoded"},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Equal(t, row.reason, pay(t, s, "/solana", c, transactionPayload(row.wire)).Why(t),
				row.name)
		})
	}
	require.Empty(t, s.Settlements())

	s.Freeze(richAccount, true)
	frozen := richDraft(func(*draft) {})
	require.Equal(t, "transaction_simulation_failed: instruction 2: custom program error: 0x11",
		pay(t, s, "/solana", c, transactionPayload(frozen)).Why(t))
	s.Freeze(richAccount, false)
	s.Advance(151 * slotTime)
	require.Equal(t, "transaction_simulation_failed: BlockhashNotFound",
		pay(t, s, "/solana", c, transactionPayload(frozen)).Why(t))
	require.Empty(t, s.Settlements())
	require.Equal(t, 200, pay(t, s, "/solana", c, transactionPayload(richDraft(func(*draft) {}))).Status)
}

// A memo that the seller asked for must be there to the letter.
func TestSellersMemo(t *testing.T) {
	s := start(t, Options{})
	agent := newKey()
	account := s.Fund(agent.PublicKey().String(), USDC)
	c := testworld.Challenge(t, s.SellerURL+"/solana")
	raw := bytes.Replace(c.Accepts[0].Raw, []byte(`"extra":{`), []byte(`"extra":{"memo":"order 7",`), 1)
	c.Accepts[0].Raw = raw
	_, refused := testworld.Settle(t, s.FacilitatorURL, c,
		transactionPayload(newDraft(t, s, agent, account, mill).wire(agent)))
	require.Equal(t, "invalid_exact_svm_payload_memo_mismatch", refused.ErrorReason)
	_, paid := testworld.Settle(t, s.FacilitatorURL, c,
		transactionPayload(newDraft(t, s, agent, account, mill).with(func(d *draft) {
			d.memo = "order 7"
		}).wire(agent)))
	require.True(t, paid.Success, paid.ErrorReason)
}

func TestSolanaNode(t *testing.T) {
	s := start(t, Options{Finality: 4 * time.Second})
	agent := newKey()
	account := s.Delegate(agent.PublicKey().String(), mill)
	c := testworld.Challenge(t, s.SellerURL+"/solana")
	receipt := must.Get(wire.ReadSettlement(pay(t, s, "/solana", c,
		transactionPayload(newDraft(t, s, agent, account, mill).wire(agent))).Header))(t)
	node := func(method, params string) string {
		return testworld.AskNode(t, s.SolanaNodeURL, method, params)
	}

	require.Contains(t, node("getGenesisHash", "[]"), genesisDevnet)
	require.Contains(t, node("getAccountInfo", `["`+account+`",{"encoding":"base64"}]`), `"space":165`)
	require.Contains(t, node("getAccountInfo", `["`+s.solana.asset.Address+`",{"encoding":"base64"}]`),
		`"space":82`)
	require.Contains(t, node("getAccountInfo", `["`+s.Owner+`",{"encoding":"base64"}]`), `"value":null`)
	require.Contains(t, node("getTokenAccountsByOwner", `["`+s.Owner+`",{"mint":"`+s.solana.asset.Address+
		`"},{"encoding":"base64"}]`), account)
	require.NotContains(t, node("getTokenAccountsByDelegate", `["`+agent.PublicKey().String()+
		`",{"programId":"`+solana.TokenProgramID.String()+`"},{"encoding":"base64"}]`), account)
	s.Delegate(agent.PublicKey().String(), 5)
	require.Contains(t, node("getTokenAccountsByDelegate", `["`+agent.PublicKey().String()+
		`",{"programId":"`+solana.TokenProgramID.String()+`"},{"encoding":"base64"}]`), account)

	final, confirmed := `["`+account+`"]`, `["`+account+`",{"commitment":"confirmed"}]`
	require.Equal(t, "[]", node("getSignaturesForAddress", final), "not final yet")
	require.Contains(t, node("getSignaturesForAddress", confirmed), receipt.Transaction)
	s.Advance(5 * time.Second)
	require.Contains(t, node("getSignaturesForAddress", final), receipt.Transaction)
	require.Contains(t, node("getSignaturesForAddress", final), "[16] 0123456789abcdef")
	require.Contains(t, node("getTransaction", `["`+receipt.Transaction+
		`",{"encoding":"base64","maxSupportedTransactionVersion":0}]`),
		`"preTokenBalances":[{"accountIndex":2`)
	require.Contains(t, node("getSignatureStatuses", `[["`+receipt.Transaction+`","x"]]`),
		`"confirmationStatus":"finalized"`)
	require.Contains(t, node("getNothing", "[]"), "-32601")
}

// The owner delegates and revokes with transactions of its own; nobody else can.
func TestOwnersTransactions(t *testing.T) {
	s := start(t, Options{})
	agent := newKey().PublicKey()
	account := s.OwnerAccount
	send := func(signer solana.PrivateKey, data []byte, accounts ...int) string {
		s.solana.mu.Lock()
		blockhash := s.solana.issue(s.solana.slot())
		s.solana.mu.Unlock()
		keys := []solana.PublicKey{signer.PublicKey(), solana.MPK(account), agent, s.solana.mint,
			solana.TokenProgramID}
		message := assemble([3]byte{1, 0, 3}, keys, blockhash,
			[]draftStep{{program: solana.TokenProgramID, accounts: accounts, data: data}}, false)
		signature := sign(signer, message)
		raw := append(append([]byte{1}, signature[:]...), message...)
		params := `["` + base64.StdEncoding.EncodeToString(raw) + `",{"encoding":"base64"}]`
		simulated := testworld.AskNode(t, s.SolanaNodeURL, "simulateTransaction", params)
		sent := testworld.AskNode(t, s.SolanaNodeURL, "sendTransaction", params)
		require.Equal(t, strings.Contains(sent, "-32002"), !strings.Contains(simulated, `"err":null`))
		return sent
	}
	sum := func(code byte, amount uint64) []byte {
		return binary.LittleEndian.AppendUint64([]byte{code}, amount)
	}

	require.NotContains(t, send(s.ownerKey, append(sum(13, 70), 6), 1, 3, 2, 0), "error")
	require.Equal(t, tokenAccount{owner: solana.MPK(s.Owner), mint: s.solana.mint, amount: purse,
		delegate: agent, delegated: 70}, s.solana.account(account))
	require.NotContains(t, send(s.ownerKey, sum(4, 90), 1, 2, 0), "error")
	require.EqualValues(t, 90, s.Delegated(account))
	require.Contains(t, send(newKey(), sum(4, 91), 1, 2, 0), "0x4")
	require.Contains(t, send(s.ownerKey, append(sum(13, 70), 9), 1, 3, 2, 0), "0x12")
	require.EqualValues(t, 90, s.Delegated(account))
	require.NotContains(t, send(s.ownerKey, []byte{5}, 1, 0), "error")
	require.Zero(t, s.solana.account(account).delegate)

	numbers := must.JSON[[]int](s.OwnerKeypair)(t)
	require.Len(t, numbers, 64)
	require.EqualValues(t, s.ownerKey[0], numbers[0])
}
