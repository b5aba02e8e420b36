package schemes

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

func (p *evmPayer) permit(t *testing.T, s *World, c *wire.Challenge) onchain.Authorization {
	return must.Get(p.byPermit2().Authorize(t.Context(), onchain.Order{Requirement: c.Accepts[0],
		Asset:  s.chain.Asset,
		Source: p.Address(), Validity: c.Accepts[0].MaxTimeout, Now: s.Now(), Extensions: c.Extensions}))(t)
}

func payPermit(t *testing.T, s *World, path string, c *wire.Challenge,
	a onchain.Authorization) testworld.Answer {
	encoded := must.Get(wire.EncodePayload(c, c.Accepts[0], a.Payload, a.Extensions))(t)
	paid := wire.Attach(c.Dialect, encoded)
	return testworld.Get(t, s.SellerURL+path, paid.Header, paid.Value)
}

// settlePermit asks the facilitator to settle for an amount, whatever was accepted.
func settlePermit(t *testing.T, s *World, c *wire.Challenge, a onchain.Authorization,
	amount string) (*wire.Settlement, error) {
	encoded := must.Get(wire.EncodePayload(c, c.Accepts[0], a.Payload, a.Extensions))(t)
	terms := must.JSON[map[string]any](c.Accepts[0].Raw)(t)
	terms["amount"] = amount
	body := must.Get(json.Marshal(map[string]any{"x402Version": 2, "paymentPayload": encoded,
		"paymentRequirements": terms}))(t)
	answer := must.Get(http.Post(s.FacilitatorURL+"/settle", "application/json", bytes.NewReader(body)))(t)
	defer answer.Body.Close()
	text := must.Get(io.ReadAll(answer.Body))(t)
	return wire.DecodeSettlement(text)
}

// Both ways are paid, and the wallet's own code finds on the chain what became of it.
func TestPermit2(t *testing.T) {
	s := start(t, sandbox.Options{Finality: time.Second})
	payer := newEVMPayer(t, s, sandbox.USDC)
	for _, row := range []struct {
		path           string
		approve, moves uint64
	}{{"/permit2", 0, mill}, {"/permit2", 5 * mill, mill}, {"/upto", 0, 4 * mill},
		{"/upto", 50 * mill, 4 * mill}} {
		s.Approve(payer.Address(), row.approve)
		before := s.Balance(payer.Address())
		c := testworld.Challenge(t, s.SellerURL+row.path)
		a := payer.permit(t, s, c)
		require.Equal(t, row.approve == 0, a.Extensions[x402.EIP2612Sponsoring] != nil)
		status := must.Get(payer.byPermit2().Status(t.Context(), a.Evidence))(t)
		require.Equal(t, x402.Open, status.State)

		answer := payPermit(t, s, row.path, c, a)
		require.Equal(t, 200, answer.Status, "%+v", answer)
		require.Equal(t, row.moves, before-s.Balance(payer.Address()))
		settled := s.Settlements()[len(s.Settlements())-1]
		require.Equal(t, row.moves, settled.Amount)
		require.Equal(t, max(row.approve, Price(row.path))-row.moves, s.Approved(payer.Address()))
		s.Advance(3 * time.Second)
		status = must.Get(payer.byPermit2().Status(t.Context(), a.Evidence))(t)
		require.Equal(t, x402.Settled, status.State, status.Note)
		require.Equal(t, settled.Transaction, status.Transaction)
		if row.path == "/upto" {
			require.Equal(t, "4000", status.Amount.String())
		}
		asked := a.Evidence
		asked.Amount = money.NewAmount(row.moves)
		// the seller's own look, by the data of the call
		received := must.Get(payer.byPermit2().Received(t.Context(), asked))(t)
		require.Equal(t, settled.Transaction, received.Transaction, received.Note)
		require.Equal(t, string(refusesSimulation), payPermit(t, s, row.path, c, a).Why(t), "used")
	}
	require.Len(t, s.Settlements(), 4)
	require.Equal(t, 4, s.Signatures())
}

// What the contracts and the reference facilitator refuse is refused, and moves nothing.
func TestPermit2Refuses(t *testing.T) {
	s := start(t, sandbox.Options{})
	key := testworld.NewEVMKey(t)
	payer := newEVMPayerOf(s, key, sandbox.USDC)
	// signed is a payment that is changed before it is signed; extensions are those of an honest one
	signed := func(path string, change func(*message.Permit2Authorization)) (*wire.Challenge,
		onchain.Authorization) {
		c := testworld.Challenge(t, s.SellerURL+path)
		honest := payer.permit(t, s, c)
		_, a, err := payload.RecoverPermit2(sandbox.EVM, honest.Payload)
		require.NoError(t, err)
		change(&a)
		digest := must.Get(payload.Permit2Digest(sandbox.EVM, a))(t)
		signature := signDigest(t, key, digest)
		object := must.Get(payload.EncodePermit2Authorization(a))(t)
		honest.Payload = must.Get(json.Marshal(map[string]any{"permit2Authorization": json.RawMessage(object),
			"signature": "0x" + hex.EncodeToString(signature[:])}))(t)
		return c, honest
	}
	type authorization = message.Permit2Authorization
	const stranger = "0x857b06519E91e3A54538791bDbb0E22373e36b66"
	for _, row := range []struct {
		path, reason string
		change       func(*authorization)
	}{
		{"/permit2", "invalid_permit2_spender", func(a *authorization) {
			a.Spender, a.Facilitator = message.UptoProxy, s.Settler
		}},
		{"/upto", "invalid_permit2_spender", func(a *authorization) {
			a.Spender, a.Facilitator = message.ExactProxy, ""
		}},
		{"/permit2", "invalid_permit2_recipient_mismatch", func(a *authorization) { a.To = stranger }},
		{"/upto", "upto_facilitator_mismatch", func(a *authorization) { a.Facilitator = stranger }},
		{"/permit2", "permit2_deadline_expired", func(a *authorization) { a.Deadline = s.Now().Unix() + 1 }},
		{"/permit2", "permit2_not_yet_valid", func(a *authorization) { a.ValidAfter = s.Now().Unix() + 30 }},
		{"/permit2", "permit2_amount_mismatch", func(a *authorization) {
			a.Amount = money.NewAmount(mill + 1)
		}},
		{"/upto", "permit2_amount_mismatch", func(a *authorization) {
			a.Amount = money.NewAmount(4 * mill)
		}},
		{"/permit2", "permit2_token_mismatch", func(a *authorization) { a.Token = stranger }},
		{"/permit2", "invalid_permit2_signature", func(a *authorization) { a.From = stranger }},
	} {
		t.Run(row.path+" "+row.reason, func(t *testing.T) {
			c, a := signed(row.path, row.change)
			require.Equal(t, row.reason, payPermit(t, s, row.path, c, a).Why(t))
		})
	}

	asIs := func(*authorization) {}
	c, a := signed("/permit2", asIs)
	approval := a.Extensions
	a.Extensions = nil
	refused := payPermit(t, s, "/permit2", c, a)
	require.Equal(t, 412, refused.Status, refused.Why(t))
	require.Equal(t, string(refusesAllowance), refused.Why(t))
	require.NotNil(t, approval)
	a.Extensions = map[string]json.RawMessage{x402.EIP2612Sponsoring: json.RawMessage(strings.Replace(
		string(approval[x402.EIP2612Sponsoring]), `"1000"`, `"1001"`, 1))}
	require.Equal(t, "invalid_eip2612_extension", payPermit(t, s, "/permit2", c, a).Why(t))
	poor := newEVMPayer(t, s, mill-1)
	c = testworld.Challenge(t, s.SellerURL+"/permit2")
	require.Equal(t, string(refusesBalance), payPermit(t, s, "/permit2", c, poor.permit(t, s, c)).Why(t))
	require.Empty(t, s.Settlements())
}

// At upto the facilitator settles once, for what it is told, and for no more than was signed; what cost
// nothing makes no transaction, and may be settled later.
func TestUptoSettles(t *testing.T) {
	s := start(t, sandbox.Options{})
	payer := newEVMPayer(t, s, sandbox.USDC)
	c := testworld.Challenge(t, s.SellerURL+"/upto")
	a := payer.permit(t, s, c)
	for _, row := range []struct{ amount, reason string }{
		{"20001", "invalid_upto_evm_payload_settlement_exceeds_amount"}, {"0", ""}, {"7000", ""},
		{"7000", string(refusesSimulation)},
	} {
		done := must.Get(settlePermit(t, s, c, a, row.amount))(t)
		require.Equal(t, row.reason, done.ErrorReason)
		require.Equal(t, row.reason == "", done.Success)
		if done.Success {
			require.Equal(t, row.amount, done.Amount)
			require.Equal(t, row.amount == "0", done.Transaction == "")
		}
	}
	require.Len(t, s.Settlements(), 1)
	require.EqualValues(t, sandbox.USDC-7*mill, s.Balance(payer.Address()))
	exact := testworld.Challenge(t, s.SellerURL+"/permit2")
	done := must.Get(settlePermit(t, s, exact, payer.permit(t, s, exact), "900"))(t)
	require.Equal(t, "invalid_payment_requirements", done.ErrorReason, "only upto comes to less")
}

// The node answers by the names that the contracts have.
func TestSelectors(t *testing.T) {
	for signature, selector := range map[string]string{"allowance(address,address)": callAllowance,
		"nonces(address)": callNonces, "nonceBitmap(address,uint256)": callNonceBitmap,
		"approve(address,uint256)":              callApprove,
		"transferFrom(address,address,uint256)": callTransferFrom} {
		require.Equal(t, selector, hex.EncodeToString(sandbox.Keccak(signature)[:4]), signature)
	}
	approval := sandbox.Keccak("Approval(address,address,uint256)")
	require.Equal(t, topicApproval, "0x"+hex.EncodeToString(approval))
	require.Equal(t, crypto.Keccak256([]byte("x")), sandbox.Keccak("x"))
}
