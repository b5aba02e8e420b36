package svm

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/chain/svm/decode"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// samplePlan is a payment of person 1.
func samplePlan() *plan {
	return &plan{parties: parties{payee: keyOf(seller), mint: mint, feePayer: keyOf(payer), memo: "memo"},
		agent: keyOf(person(1)), source: keyOf(owner), destination: keyOf(person(6)), program: tokenProgram,
		amount: 1_234_567, decimals: 6, limit: 20_000, price: 1,
		blockhash: solana.Hash(solana.MPK(nodesHash))}
}

func sampleMessage() []byte {
	message, err := samplePlan().message()
	if err != nil {
		panic(err)
	}
	return message
}

// The bytes in testdata/messages.json were written by another compiler than solana-go's.
func TestMessagesToTheByte(t *testing.T) {
	sample := samplePlan()
	sample.source = keyOf(person(5))
	withMemo := must.Get(sample.message())(t)
	sample.memo, sample.program = "", token2022
	without := must.Get(sample.message())(t)
	e, c, _ := newWallet(t)
	approve, err := e.Approve(t.Context(), devnet, c.ata(owner).String(), usdc, money.NewAmount(5_000_000))
	require.NoError(t, err)
	revoke := must.Get(e.Revoke(t.Context(), devnet, c.ata(owner).String()))(t)
	data := must.Get(os.ReadFile("testdata/messages.json"))(t)
	var want map[string][]byte // base64
	require.NoError(t, json.Unmarshal(data, &want))
	require.Equal(t, want, map[string][]byte{"payment with a memo": withMemo,
		"payment under Token-2022 without a memo": without, "approve": approve.Message,
		"revoke": revoke.Message})
}

// Whoever takes part, even in two roles: what is built is read as what was planned, or refused. It is read
// if each address has one role.
func TestAPaymentIsReadAsPlannedOrRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.Bool().Draw(t, "few")
		seen := map[solana.PublicKey]bool{}
		key := rapid.Custom(func(t *rapid.T) (k solana.PublicKey) {
			if few {
				k[31] = rapid.ByteRange(1, 9).Draw(t, "key")
			} else {
				copy(k[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key"))
			}
			return k
		})
		draw := func(label string) solana.PublicKey {
			k := key.Draw(t, label)
			seen[k] = true
			return k
		}
		p := plan{agent: draw("agent"), source: draw("source"), destination: draw("destination"),
			program: programOf(rapid.Bool().Draw(t, "token2022")), amount: rapid.Uint64().Draw(t, "amount"),
			decimals: rapid.Uint8().Draw(t, "decimals"), limit: rapid.Uint32().Draw(t, "limit"),
			price: rapid.Uint64().Draw(t, "price"), blockhash: solana.Hash(key.Draw(t, "blockhash"))}
		p.mint, p.feePayer = draw("mint"), draw("feePayer")
		p.memo = rapid.StringN(0, -1, maxMemo).Draw(t, "memo")
		if p.feePayer.IsZero() {
			t.Skip("nobody is named, which plan refuses")
		}
		message := must.Get(p.message())(t)
		got, err := decode.Message(message)
		if err != nil {
			require.ErrorIs(t, err, decode.ErrLayout)
			require.Less(t, len(seen), 5)
			return
		}
		require.Len(t, seen, 5)
		require.Equal(t, decode.Transfer{FeePayer: p.feePayer.String(), Signers: got.Signers,
			Token2022: p.program == token2022, Mint: p.mint.String(), Source: p.source.String(),
			Destination: p.destination.String(), Authority: p.agent.String(),
			Amount: money.NewAmount(p.amount), Decimals: p.decimals, HasMemo: p.memo != "", Memo: p.memo,
			UnitLimit: p.limit, UnitPrice: p.price, Blockhash: p.blockhash.String(), Message: message}, got)
	})
}

// solana-go compiles one kind of message wrongly: of two signers that are only read, the one that another
// place names as writable is counted as writable, but stands behind the other. So the other becomes writable,
// and it does not. The decoder refuses that message. None of ours is one: beside the payer of the fee at most
// one account signs.
func TestTheMessageThatSolanaGoCompilesWronglyIsRefused(t *testing.T) {
	p := samplePlan()
	transfer := func(destination solana.PublicKey) []byte {
		signers := solana.AccountMetaSlice{solana.Meta(p.agent).SIGNER(), solana.Meta(destination).SIGNER()}
		return must.Get(compile(p.feePayer, p.blockhash,
			solana.NewInstruction(solana.ComputeBudget, nil, []byte{opUnitLimit, 0, 0, 0, 0}),
			solana.NewInstruction(solana.ComputeBudget, nil, []byte{opUnitPrice, 0, 0, 0, 0, 0, 0, 0, 0}),
			solana.NewInstruction(p.program, solana.AccountMetaSlice{solana.Meta(p.source).WRITE(),
				solana.Meta(p.mint), solana.Meta(destination).WRITE(), solana.Meta(p.agent).SIGNER()},
				append([]byte{opTransferChecked}, make([]byte, 9)...)),
			solana.NewInstruction(solana.MemoProgramID, signers, []byte("memo"))))(t)
	}
	behind := p.agent
	behind[0]++ // so that it is sorted behind the agent
	wrong := transfer(behind)
	var m solana.Message
	require.NoError(t, m.UnmarshalBase64(base64.StdEncoding.EncodeToString(wrong)))
	for key, isWritable := range map[solana.PublicKey]bool{p.agent: true, behind: false} {
		got := must.Get(m.IsWritable(key))(t)
		require.Equal(t, isWritable, got, "solana-go compiles it rightly now: this test can go")
	}
	_, err := decode.Message(wrong)
	require.ErrorContains(t, err, "other signers than a fee payer and an authority")
}

// The one payment of which an account signs in one role and is writable in another: the source is the agent's
// own address. It is not signed.
func TestTheAgentsAddressIsNoSource(t *testing.T) {
	e, c, s := newWallet(t)
	c.put(e.agent, token{mint: mint, owner: keyOf(owner), delegate: e.agent, amount: 9_000_000,
		delegated: 5_000_000})
	_, err := e.Authorize(t.Context(), orderFrom(e.agent, asks()))
	require.ErrorContains(t, err, "other signers than a fee payer and an authority")
	require.Zero(t, s.asked)
}

// The builder and the check of what it built read an address by different libraries, and as the same.
func FuzzParseKey(f *testing.F) {
	for _, text := range []string{"", "x", mint.String(), "1" + mint.String(), mint.String() + " ",
		strings.Repeat("1", 32), strings.Repeat("1", 33), strings.Repeat("z", 44),
		strings.Repeat("z", 1<<20)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := parseKey(text)
		data := x402.DecodeBase58(text, solana.PublicKeyLength)
		if data == nil {
			require.ErrorIs(t, err, errAddress)
			return
		}
		require.NoError(t, err)
		require.Equal(t, solana.PublicKey(data), key)
		require.Equal(t, text, key.String())
	})
}
