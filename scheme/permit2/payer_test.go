package permit2

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// permit2Vector is a payment that the reference client made and the reference facilitator judged.
type permit2Vector struct {
	PaymentRequired struct {
		Accepts    []json.RawMessage
		Extensions map[string]json.RawMessage
	}
	Payload struct {
		Payload    json.RawMessage
		Extensions map[string]json.RawMessage
	}
	TypedData []struct{ By, Digest, Signature string }
	Bad       struct{ Change string }
	Refused   string
}

func permit2Vectors(t *testing.T) map[string]permit2Vector {
	t.Helper()
	read := must.Get(os.ReadFile("../../chain/evm/testdata/permit2-vectors.json"))(t)
	all := must.JSON[struct{ Vectors map[string]permit2Vector }](read)(t)
	require.Len(t, all.Vectors, 16)
	return all.Vectors
}

func (v permit2Vector) requirement(t *testing.T) (x402.Requirement, x402.AssetInfo) {
	t.Helper()
	r := must.Get(x402.DecodeRequirement(v.PaymentRequired.Accepts[0], 2))(t)
	asset, known := x402.NewRegistry(nil).Asset(r.Network, r.Asset)
	require.True(t, known)
	return r, asset
}

func (v permit2Vector) order(t *testing.T) onchain.Order {
	r, asset := v.requirement(t)
	return onchain.Order{Requirement: r, Asset: asset, Source: us, Extensions: v.PaymentRequired.Extensions,
		Validity: r.MaxTimeout, Now: noon}
}

// What is signed are the reference client's payments, byte for byte: exact and upto, with an approval where
// it is needed and offered.
func TestPayerVectors(t *testing.T) {
	for name, v := range permit2Vectors(t) {
		if v.Refused != "" || v.order(t).Requirement.Network != sepolia {
			continue
		}
		t.Run(name, func(t *testing.T) {
			f := newFakeNode(t)
			isApproved := len(v.TypedData) == 1
			if isApproved {
				f.Allowance = money.NewAmount(1_000_000)
			} else {
				approval := must.Get(payload.RecoverPermit(v.order(t).Asset,
					v.Payload.Extensions[x402.EIP2612Sponsoring]))(t)
				nonce, _ := approval.Nonce.Uint64()
				f.PermitNonce = byte(nonce)
			}
			made := must.Get(f.payer(testSigner(t)).Authorize(t.Context(), v.order(t)))(t)
			require.Equal(t, compacted(t, v.Payload.Payload), string(made.Payload))
			require.Equal(t, isApproved, len(made.Extensions) == 0)
			if isApproved {
				return
			}
			whole := must.Get(wire.EncodePayload(&wire.Challenge{Version: 2,
				Extensions: v.PaymentRequired.Extensions},
				v.order(t).Requirement, made.Payload, made.Extensions))(t)
			sent := must.JSON[struct{ Extensions map[string]json.RawMessage }](whole)(t)
			require.JSONEq(t, string(v.Payload.Extensions[x402.EIP2612Sponsoring]),
				string(sent.Extensions[x402.EIP2612Sponsoring]))
		})
	}
}

// Without an approval that is there or offered nothing is signed, nor is an approval for a token that takes
// none.
func TestPayerRefusesBeforeSigning(t *testing.T) {
	v := permit2Vectors(t)["exact_permit2_eip2612"]
	for name, test := range map[string]struct {
		change func(o *onchain.Order, f *fakeNode)
		code   x402.Code
	}{
		"no approval": {func(o *onchain.Order, _ *fakeNode) { o.Extensions = nil }, x402.NoDelegation},
		"an approval by transaction": {func(o *onchain.Order, _ *fakeNode) {
			o.Extensions = map[string]json.RawMessage{x402.ERC20Sponsoring: json.RawMessage(`{}`)}
		}, x402.NoDelegation},
		"a token without EIP-2612": {func(_ *onchain.Order, f *fakeNode) { f.NoPermits = true },
			x402.InvalidRequirement},
		"an asset without a domain": {func(o *onchain.Order, _ *fakeNode) { o.Asset.Name = "" },
			x402.InvalidRequirement},
		"no Permit2 there": {func(_ *onchain.Order, f *fakeNode) { f.NoPermit2 = true },
			x402.InvalidRequirement},
		"a used nonce": {func(_ *onchain.Order, f *fakeNode) { f.PermitUsed = true }, x402.Internal},
		"for too short": {func(o *onchain.Order, _ *fakeNode) { o.Validity = 5 * time.Second },
			x402.InvalidRequirement},
		"for too long": {func(o *onchain.Order, _ *fakeNode) { o.Validity = 25 * time.Hour },
			x402.InvalidRequirement},
		"somebody's money": {func(o *onchain.Order, _ *fakeNode) { o.Source = stranger }, x402.Internal},
		"no time":          {func(o *onchain.Order, _ *fakeNode) { o.Now = time.Time{} }, x402.Internal},
		"another clock": {func(o *onchain.Order, _ *fakeNode) { o.Now = o.Now.Add(time.Hour) },
			x402.ClockSuspect},
	} {
		t.Run(name, func(t *testing.T) {
			f, signer, o := newFakeNode(t), testSigner(t), v.order(t)
			test.change(&o, f)
			requireCode(t, test.code, must.Err(f.payer(signer).Authorize(t.Context(), o)))
			require.Empty(t, signer.Digests, "the signer was asked")
		})
	}
}

// A traitor inside that changes the bytes is found before the signer is asked.
func TestTamperedPermitsAreNeverSigned(t *testing.T) {
	change := func(f func(*message.Permit2Authorization)) func(message.Permit2Authorization) ([]byte, error) {
		return func(a message.Permit2Authorization) ([]byte, error) {
			f(&a)
			return payload.EncodePermit2Authorization(a)
		}
	}
	for way, cases := range map[string]map[string]func(message.Permit2Authorization) ([]byte, error){
		"exact_permit2_lowercase_addresses": {
			"payee": change(func(a *message.Permit2Authorization) { a.To = stranger }),
			"payer": change(func(a *message.Permit2Authorization) { a.From = stranger }),
			"token": change(func(a *message.Permit2Authorization) { a.Token = stranger }),
			"amount": change(func(a *message.Permit2Authorization) {
				a.Amount = money.NewAmount(10_001)
			}),
			"a unit less": change(func(a *message.Permit2Authorization) {
				a.Amount = money.NewAmount(9_999)
			}),
			"validity 1 s more": change(func(a *message.Permit2Authorization) { a.Deadline++ }),
			"over":              change(func(a *message.Permit2Authorization) { a.Deadline = noon.Unix() }),
			"begins later":      change(func(a *message.Permit2Authorization) { a.ValidAfter = noon.Unix() }),
			"no nonce":          change(func(a *message.Permit2Authorization) { a.Nonce = [32]byte{} }),
			"another spender":   change(func(a *message.Permit2Authorization) { a.Spender = stranger }),
			"upto's spender": change(func(a *message.Permit2Authorization) {
				a.Spender, a.Facilitator = message.UptoProxy, stranger
			}),
			"another key": func(a message.Permit2Authorization) ([]byte, error) {
				object, err := payload.EncodePermit2Authorization(a)
				return bytes.Replace(object, []byte(`{"from"`), []byte(`{"more":"","from"`), 1), err
			},
			"failing": func(message.Permit2Authorization) ([]byte, error) { return nil, errors.New("no") },
		},
		"upto_partial": {
			"facilitator": change(func(a *message.Permit2Authorization) { a.Facilitator = us }),
			"exact's spender": change(func(a *message.Permit2Authorization) {
				a.Spender, a.Facilitator = message.ExactProxy, ""
			}),
			"ceiling": change(func(a *message.Permit2Authorization) {
				a.Amount = money.NewAmount(50_001)
			}),
		},
	} {
		for name, traitor := range cases {
			t.Run(way+"/"+name, func(t *testing.T) {
				f, signer := newFakeNode(t), testSigner(t)
				f.Allowance = money.NewAmount(1_000_000)
				p := f.payer(signer)
				p.encode = traitor
				made, err := p.Authorize(t.Context(), permit2Vectors(t)[way].order(t))
				requireCode(t, x402.Internal, err)
				require.Empty(t, made.Payload)
				require.Empty(t, signer.Digests, "the signer was asked")
			})
		}
	}
}

func TestABadPermitIsDropped(t *testing.T) {
	signer := testSigner(t)
	signer.Spoil = func(s [65]byte) [65]byte { s[64] -= 27; return s }
	made, err := newFakeNode(t).payer(signer).
		Authorize(t.Context(), permit2Vectors(t)["exact_permit2_eip2612"].order(t))
	requireCode(t, x402.Internal, err)
	require.Empty(t, made.Payload)
	require.Empty(t, made.Extensions)
}

func TestPayerPayable(t *testing.T) {
	exact, upto := permit2Vectors(t)["exact_permit2_eip2612"], permit2Vectors(t)["upto_partial"]
	p := newFakeNode(t).payer(testSigner(t))
	extra := func(key, value string) func(*x402.Requirement) {
		return func(r *x402.Requirement) { r.Extra[key] = json.RawMessage(value) }
	}
	for _, good := range []permit2Vector{exact, upto} {
		r, asset := good.requirement(t)
		require.NoError(t, p.Payable(r, asset))
		asset.Permit2Only = true
		require.NoError(t, p.Payable(r, asset))
		delete(r.Extra, "name")
		require.NoError(t, p.Payable(r, asset))
	}
	for name, test := range map[string]struct {
		of     permit2Vector
		change func(*x402.Requirement)
		why    string
	}{
		"EIP-3009": {exact, extra("assetTransferMethod", `"eip3009"`), "not one that is paid by Permit2"},
		"called so": {exact, func(r *x402.Requirement) { r.Scheme, r.Extra = x402.Permit2, nil },
			"not one"},
		"version 1":       {exact, func(r *x402.Requirement) { r.Version = 1 }, "version 2"},
		"no amount":       {exact, func(r *x402.Requirement) { r.Amount = money.Amount{} }, "amount is 0"},
		"5 seconds":       {exact, func(r *x402.Requirement) { r.MaxTimeout = 5 * time.Second }, "below 6"},
		"another network": {exact, func(r *x402.Requirement) { r.Network = "eip155:1" }, "node"},
		"Gateway":         {exact, extra("name", `"GatewayWalletBatched"`), "Gateway"},
		"another asset":   {exact, func(r *x402.Requirement) { r.Asset = stranger }, "registry"},
		"to ourselves":    {exact, func(r *x402.Requirement) { r.PayTo = us }, "own address"},
		"to Permit2": {exact, func(r *x402.Requirement) {
			r.PayTo = message.Permit2Address
		}, "contract"},
		"to a proxy":       {upto, func(r *x402.Requirement) { r.PayTo = message.ExactProxy }, "contract"},
		"upto by EIP-3009": {upto, extra("assetTransferMethod", `"eip3009"`), "Permit2 only"},
		"upto in escrow":   {upto, extra("paymentFlow", `"escrow"`), "flow"},
		"settled by nobody": {upto, extra("facilitatorAddress",
			`"0x0000000000000000000000000000000000000000"`), "no address"},
		"settled by a number": {upto, extra("facilitatorAddress", `7`), "no address"},
		"nobody settles it": {upto, func(r *x402.Requirement) { delete(r.Extra, "facilitatorAddress") },
			"no address"},
	} {
		t.Run(name, func(t *testing.T) {
			r, asset := test.of.requirement(t)
			test.change(&r)
			err := p.Payable(r, asset)
			require.Error(t, err)
			require.Contains(t, x402.AsError(err).Message, test.why)
		})
	}
}

// What lies there and what Permit2 may move of it are told apart.
func TestPayerFunds(t *testing.T) {
	f := newFakeNode(t)
	f.Balance, f.Allowance = money.NewAmount(500), money.NewAmount(300)
	got := must.Get(f.payer(testSigner(t)).Funds(t.Context(), sepolia, usdc))(t)
	require.Equal(t, []string{"500", "500", "300", us}, []string{got.Balance.String(), got.Free.String(),
		got.Permitted.String(), got.Source})
}

func compacted(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	text := string(raw)
	for _, space := range []string{"\n", " "} {
		text = strings.ReplaceAll(text, space, "")
	}
	return text
}

// The ABI of EIP-2612, Permit2 and the proxies.
func TestSelectors(t *testing.T) {
	keccak := func(s string) string { return hexOf(crypto.Keccak256([]byte(s))) }
	const permit, approval = "((address,uint256),uint256,uint256)", "(uint256,uint256,bytes32,bytes32,uint8)"
	require.Equal(t, keccak("nonces(address)")[:10], hexOf(selectNonces))
	require.Equal(t, keccak("nonceBitmap(address,uint256)")[:10], hexOf(selectNonceBitmap))
	require.Equal(t, keccak("UnorderedNonceInvalidation(address,uint256,uint256)"), topicInvalidated.Hex())
	for i, call := range []string{"settle(" + permit + ",address,(address,uint256),bytes)",
		"settleWithPermit(" + approval + "," + permit + ",address,(address,uint256),bytes)",
		"settle(" + permit + ",uint256,address,(address,address,uint256),bytes)",
		"settleWithPermit(" + approval + "," + permit + ",uint256,address,(address,address,uint256),bytes)"} {
		require.Equal(t, keccak(call)[:10], hexOf(settleCalls[i].selector()))
	}
}
