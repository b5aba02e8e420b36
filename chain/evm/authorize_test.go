package evm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

func TestVectors(t *testing.T) {
	v := readJSON[vectors](t, "testdata/x402-vectors-eip3009.json")
	require.Len(t, v.Vectors, 3)
	for name, version := range map[string]int{"v2_exact_eip3009": 2, "v2_exact_eip3009_ext_echo": 2,
		"v1_exact_eip3009": 1} {
		t.Run(name, func(t *testing.T) {
			want := v.Vectors[name]
			signer := testSigner(t)
			made := must.Get(newFakeNode(t).exact(t, signer).Authorize(t.Context(), order(version)))(t)

			var compact bytes.Buffer
			require.NoError(t, json.Compact(&compact, want.Payload.Payload))
			require.Equal(t, compact.String(), string(made.Payload), "key order included")
			require.Len(t, signer.Digests, 1)
			require.Equal(t, want.TypedData[0].Digest, hexOf(signer.Digests[0][:]))
			domain := must.Get(message.DomainSeparator(usdc))(t)
			require.Equal(t, want.TypedData[0].DomainSeparator, domain.Hex())
			require.Contains(t, string(made.Payload), want.TypedData[0].Signature)
			require.Equal(t, x402.Evidence{Network: sepolia, Asset: usdc.Address, Payer: us, PayTo: payee,
				Amount:      requirement(2).Amount,
				Nonce:       "0x0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20",
				ValidBefore: 1740672149, ExpiresAt: time.Unix(1740672149, 0).UTC()}, made.Evidence)
		})
	}
}

// What is signed is what was validated is what is sent. A traitor inside that changes
// the bytes is found before the signer is asked.
func TestTamperedBytesAreNeverSigned(t *testing.T) {
	change := func(f func(*message.Authorization3009)) func(message.Authorization3009) ([]byte, error) {
		return func(a message.Authorization3009) ([]byte, error) {
			f(&a)
			return payload.EncodeAuthorization(a)
		}
	}
	replace := func(old, new string) func(message.Authorization3009) ([]byte, error) {
		return func(a message.Authorization3009) ([]byte, error) {
			object, err := payload.EncodeAuthorization(a)
			return bytes.Replace(object, []byte(old), []byte(new), 1), err
		}
	}
	for name, traitor := range map[string]func(message.Authorization3009) ([]byte, error){
		"payee":  change(func(a *message.Authorization3009) { a.To = stranger }),
		"payer":  change(func(a *message.Authorization3009) { a.From = stranger }),
		"amount": change(func(a *message.Authorization3009) { a.Value, _ = a.Value.Add(a.Value) }),
		"one unit less": change(func(a *message.Authorization3009) {
			a.Value = message.AmountOf([]byte{0x27, 0x0f})
		}),
		"validity 1 s more": change(func(a *message.Authorization3009) { a.ValidBefore++ }),
		"a year":            change(func(a *message.Authorization3009) { a.ValidBefore += 31_536_000 }),
		"already expired":   change(func(a *message.Authorization3009) { a.ValidBefore = noon.Unix() }),
		"V1's beginning": change(func(a *message.Authorization3009) {
			a.ValidAfter = noon.Unix() - v1Backdate
		}),
		"begins later":     change(func(a *message.Authorization3009) { a.ValidAfter = noon.Unix() + 1 }),
		"zero nonce":       change(func(a *message.Authorization3009) { a.Nonce = [32]byte{} }),
		"second value":     replace(`"value":`, `"value":"99","value":`),
		"another spelling": replace(`"10000"`, `"010000"`),
		"a stranger's key": replace(`{"from"`, `{"spender":"`+stranger+`","from"`),
		"broken":           replace(`}`, ``),
		"failing":          func(message.Authorization3009) ([]byte, error) { return nil, errors.New("no") },
	} {
		t.Run(name, func(t *testing.T) {
			signer := testSigner(t)
			e := newFakeNode(t).exact(t, signer)
			e.encode = traitor
			made, err := e.Authorize(t.Context(), order(2))
			requireCode(t, x402.Internal, err)
			require.Empty(t, made.Payload)
			require.Empty(t, signer.Digests, "the signer was asked")
		})
	}
}

func TestABadSignatureIsDropped(t *testing.T) {
	other := must.Get(crypto.GenerateKey())(t)
	for name, spoil := range map[string]func([65]byte) [65]byte{
		"v 0/1":          func(s [65]byte) [65]byte { s[64] -= 27; return s },
		"other v":        func(s [65]byte) [65]byte { s[64] = 55 - s[64]; return s },
		"malleable twin": func(s [65]byte) [65]byte { return [65]byte(common.FromHex(twin(t, hexOf(s[:])))) },
		"empty":          func([65]byte) [65]byte { return [65]byte{} },
	} {
		t.Run(name, func(t *testing.T) {
			signer := testSigner(t)
			signer.Spoil = spoil
			made, err := newFakeNode(t).exact(t, signer).Authorize(t.Context(), order(2))
			require.True(t, x402.HasCode(err, x402.Internal), "%s: %v", name, err)
			require.Empty(t, made.Payload, name)
		})
	}
	signer := testSigner(t)
	signer.Key = other
	_, err := newFakeNode(t).exact(t, signer).Authorize(t.Context(), order(2))
	require.True(t, x402.HasCode(err, x402.Internal), "another key: %v", err)

	signer = testSigner(t)
	signer.Err = x402.Errorf(x402.WalletLocked, "locked")
	_, err = newFakeNode(t).exact(t, signer).Authorize(t.Context(), order(2))
	require.True(t, x402.HasCode(err, x402.WalletLocked), "the signer's own error is kept: %v", err)
}

func TestAuthorizeRefusesBeforeSigning(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*onchain.Order)
		code   x402.Code
	}{
		"5.9 s": {func(o *onchain.Order) {
			o.Validity = MinValidity - time.Millisecond
		}, x402.InvalidRequirement},
		"no validity": {func(o *onchain.Order) { o.Validity = 0 }, x402.InvalidRequirement},
		"negative":    {func(o *onchain.Order) { o.Validity = -time.Hour }, x402.InvalidRequirement},
		"over a day": {func(o *onchain.Order) {
			o.Validity = MaxValidity + time.Second
		}, x402.InvalidRequirement},
		"no time":      {func(o *onchain.Order) { o.Now = time.Time{} }, x402.Internal},
		"other source": {func(o *onchain.Order) { o.Source = stranger }, x402.Internal},
		"unpayable":    {func(o *onchain.Order) { o.Requirement.PayTo = us }, x402.InvalidRequirement},
		"other asset":  {func(o *onchain.Order) { o.Asset.Address = stranger }, x402.UntrustedAsset},
		"clock 121 s on": {func(o *onchain.Order) { o.Now = o.Now.Add(121 * time.Second) },
			x402.ClockSuspect},
		"a day back": {func(o *onchain.Order) { o.Now = o.Now.Add(-24 * time.Hour) }, x402.ClockSuspect},
		"a year ahead": {func(o *onchain.Order) {
			o.Now = o.Now.Add(365 * 24 * time.Hour)
		}, x402.ClockSuspect},
	} {
		t.Run(name, func(t *testing.T) {
			signer := testSigner(t)
			o := order(2)
			test.change(&o)
			requireCode(t, test.code, must.Err(newFakeNode(t).exact(t, signer).Authorize(t.Context(), o)))
			require.Empty(t, signer.Digests)
		})
	}
}

func TestValidityIsTheOrders(t *testing.T) {
	for i, validity := range []time.Duration{MinValidity, 59*time.Second + 999*time.Millisecond,
		MaxValidity} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			o := order(2)
			o.Requirement.MaxTimeout = 10 * time.Hour // the seller's wish is the caller's to cap
			o.Validity = validity
			made := must.Get(newFakeNode(t).exact(t, testSigner(t)).Authorize(t.Context(), o))(t)
			require.Equal(t, noon.Unix()+int64(validity.Seconds()), made.Evidence.ValidBefore)
		})
	}
}

// The node's Date header is the second clock; where it sends none, its latest block is.
func TestClock(t *testing.T) {
	at := func(d time.Duration) string { return noon.Add(d).UTC().Format(http.TimeFormat) }
	for name, test := range map[string]struct {
		date    string
		headLag uint64
		ok      bool
	}{
		"same":                      {at(0), 0, true},
		"120 s ahead":               {at(2 * time.Minute), 0, true},
		"121 s ahead":               {at(121 * time.Second), 0, false},
		"121 s behind":              {at(-121 * time.Second), 0, false},
		"quiet chain, good Date":    {at(0), 1000, true},
		"no Date, fresh block":      {"", 0, true},
		"no Date, stale block":      {"", 100, false},
		"nonsense Date, good block": {"yesterday", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeNode(t)
			f.Date = test.date
			f.Born -= test.headLag * f.Period
			signer := testSigner(t)
			_, err := f.exact(t, signer).Authorize(t.Context(), order(2))
			if test.ok {
				require.NoError(t, err)
				return
			}
			requireCode(t, x402.ClockSuspect, err)
			require.Empty(t, signer.Digests)
		})
	}
}

func TestClockIsAskedAgainWhenItIsOld(t *testing.T) {
	f, now := newFakeNode(t), noon
	e := f.exact(t, testSigner(t))
	e.nodes[sepolia].now = func() time.Time { return now }
	pay := func(after time.Duration) error {
		now = noon.Add(after)
		o := order(2)
		o.Now = now
		return must.Err(e.Authorize(t.Context(), o))
	}
	require.NoError(t, pay(0))
	require.NoError(t, pay(10*time.Second))
	require.Zero(t, f.TimesAsked("eth_getBlockByNumber"), "eth_chainId's answer told the time")
	f.Date = noon.Add(time.Minute).UTC().Format(http.TimeFormat)
	require.NoError(t, pay(time.Minute))
	require.Equal(t, 1, f.TimesAsked("eth_getBlockByNumber"))
	require.True(t, x402.HasCode(pay(time.Hour), x402.ClockSuspect), "our clock jumped")
}

func TestNonces(t *testing.T) {
	f := newFakeNode(t)
	e := f.exact(t, testSigner(t))
	e.rand = New(Options{}).rand
	seen := map[[32]byte]bool{}
	for range 200_000 {
		a := must.Get(e.draft(order(2)))(t)
		require.False(t, seen[a.Nonce])
		seen[a.Nonce] = true
	}
	for name, broken := range map[string]io.Reader{
		"failing": readerFunc(func([]byte) (int, error) { return 0, errors.New("no entropy") }),
		"short":   strings.NewReader("thirty-one bytes are not enough"),
		"empty":   strings.NewReader(""),
		"zeros":   readerFunc(func(p []byte) (int, error) { clear(p); return len(p), nil }),
	} {
		t.Run(name, func(t *testing.T) {
			signer := testSigner(t)
			e := f.exact(t, signer)
			e.rand = broken
			_, err := e.Authorize(t.Context(), order(2))
			require.True(t, x402.HasCode(err, x402.Internal), "%s: %v", name, err)
			require.Empty(t, signer.Digests, name)
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// One payment is one signature, whatever extensions and extras the seller sends.
func TestOneSignatureOfOneType(t *testing.T) {
	signer := testSigner(t)
	o := order(2)
	o.Requirement.Extra["eip2612GasSponsoring"] = json.RawMessage(`{"info":{}}`)
	o.Requirement.Extra["domain"] = json.RawMessage(`{"name":"evil","chainId":1}`)
	o.Requirement.Extra["chainId"] = json.RawMessage(`1`)
	o.Requirement.Extra["verifyingContract"] = json.RawMessage(`"` + stranger + `"`)
	made := must.Get(newFakeNode(t).exact(t, signer).Authorize(context.Background(), o))(t)
	_, auth, err := payload.Recover(sepolia, usdc, made.Payload)
	require.NoError(t, err)
	require.Equal(t, [][32]byte{must.Get(payload.Digest(usdc, auth))(t)}, signer.Digests)
}

// twin is the other signature of the same message, which old contracts took too (EIP-2).
func twin(t *testing.T, signature string) string {
	raw := common.FromHex(signature)
	s := new(big.Int).Sub(crypto.S256().Params().N, new(big.Int).SetBytes(raw[32:64]))
	copy(raw[32:64], common.LeftPadBytes(s.Bytes(), 32))
	raw[64] = 27 + 28 - raw[64]
	return hexOf(raw)
}

// The ABI of EIP-20, EIP-3009 and the vault.
func TestSelectors(t *testing.T) {
	keccak := func(s string) string { return hexOf(crypto.Keccak256([]byte(s))) }
	require.Equal(t, keccak("balanceOf(address)")[:10], hexOf(SelectBalanceOf))
	require.Equal(t, keccak("authorizationState(address,bytes32)")[:10], hexOf(selectAuthorizationState))
	require.Equal(t, keccak("state()")[:10], hexOf(selectState))
	require.Equal(t, keccak("AuthorizationUsed(address,bytes32)"), topicUsed.Hex())
	require.Equal(t, keccak("AuthorizationCanceled(address,bytes32)"), topicCanceled.Hex())
	require.Equal(t, keccak("Transfer(address,address,uint256)"), TopicTransfer.Hex())
	require.Equal(t, keccak("allowance(address,address)")[:10], hexOf(SelectAllowance))
}
