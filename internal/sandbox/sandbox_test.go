package sandbox

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

func TestEVMPayment(t *testing.T) {
	s := start(t, Options{})
	payer := newEVMPayer(t, s, USDC)
	for _, dialect := range []string{"", "/v1", "/v2-body"} {
		t.Run(dialect, func(t *testing.T) {
			c := testworld.Challenge(t, s.SellerURL+dialect+"/weather")
			a := payer.sign(t, s, c.Accepts[0])
			answer := pay(t, s, dialect+"/weather", c, a.Payload)
			require.Equal(t, 200, answer.Status, answer.Body)
			require.Equal(t, Content("/weather"), answer.Body)
			receipt := must.Get(wire.ReadSettlement(answer.Header))(t)
			require.True(t, receipt.Success)
			status := must.Get(payer.Status(t.Context(), a.Evidence))(t)
			require.Equal(t, x402.Settled, status.State, status.Note)
			require.Equal(t, receipt.Transaction, status.Transaction)
			require.Empty(t, status.Note)

			again := pay(t, s, dialect+"/weather", c, a.Payload)
			require.Equal(t, "invalid_exact_evm_nonce_already_used", again.Why(t))
		})
	}
	require.Len(t, s.Settlements(), 3)
	require.Equal(t, 3, s.Signatures())
	require.Equal(t, 6, s.Presentations())
	_, served := s.Requests("/weather")
	require.Equal(t, 3, served)
	require.EqualValues(t, USDC-3*mill, s.Balance(payer.Address()))
	require.EqualValues(t, 3*mill, s.Balance(s.PayToEVM))
}

// An authorization that nobody brought to the chain has expired once a finalized block is past its
// end, and not before.
func TestEVMStatus(t *testing.T) {
	s := start(t, Options{Finality: 20 * time.Second})
	payer := newEVMPayer(t, s, USDC)
	c := testworld.Challenge(t, s.SellerURL+"/weather")
	a := payer.sign(t, s, c.Accepts[0])
	status := must.Get(payer.Status(t.Context(), a.Evidence))(t)
	require.Equal(t, x402.Open, status.State)
	s.Advance(65 * time.Second)
	status = must.Get(payer.Status(t.Context(), a.Evidence))(t)
	require.Equal(t, x402.Open, status.State, "not final yet")
	s.Advance(20 * time.Second)
	status = must.Get(payer.Status(t.Context(), a.Evidence))(t)
	require.Equal(t, x402.Expired, status.State, status.Note)
	require.Equal(t, "invalid_exact_evm_payload_authorization_valid_before",
		pay(t, s, "/weather", c, a.Payload).Why(t))
	require.Empty(t, s.Settlements())
}

func TestEVMRefuses(t *testing.T) {
	s := start(t, Options{})
	payer := newEVMPayer(t, s, mill-1)
	c := testworld.Challenge(t, s.SellerURL+"/weather")
	good := payer.sign(t, s, c.Accepts[0])
	replaced := func(old, with string) json.RawMessage {
		changed := strings.Replace(string(good.Payload), old, with, 1)
		require.NotEqual(t, string(good.Payload), changed)
		return json.RawMessage(changed)
	}
	dearer, elsewhere := c.Accepts[0], c.Accepts[0]
	dearer.Amount, _ = dearer.Amount.Add(dearer.Amount)
	elsewhere.PayTo = "0x857b06519E91e3A54538791bDbb0E22373e36b66"
	for _, row := range []struct {
		name    string
		payload json.RawMessage
		reason  string
	}{
		{"more than the balance", good.Payload, "invalid_exact_evm_insufficient_balance"},
		{"amount changed after signing", replaced(`"value":"1000"`, `"value":"1001"`),
			"invalid_exact_evm_signature"},
		{"another amount", payer.sign(t, s, dearer).Payload,
			"invalid_exact_evm_payload_authorization_value_mismatch"},
		{"another payee", payer.sign(t, s, elsewhere).Payload, "invalid_exact_evm_recipient_mismatch"},
		{"payer changed", replaced(payer.Address(), s.PayToEVM), "invalid_exact_evm_signature"},
		{"a key twice", replaced(`{"authorization"`, `{"signature":"","authorization"`), "invalid_payload"},
		{"another key", replaced(`{"authorization"`, `{"x":1,"authorization"`), "invalid_payload"},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Equal(t, row.reason, pay(t, s, "/weather", c, row.payload).Why(t), row.name)
		})
	}
	require.Empty(t, s.Settlements())
	_, served := s.Requests("/weather")
	require.Zero(t, served)

	raw := strings.Replace(string(c.Accepts[0].Raw), `"1000"`, `"1"`, 1)
	c.Accepts[0].Raw = json.RawMessage(raw)
	require.Equal(t, "No matching payment requirements", pay(t, s, "/weather", c, good.Payload).Why(t))
}

func TestConfigIsOne(t *testing.T) {
	s := start(t, Options{})
	c := must.Get(config.Parse([]byte(s.Config(Rules{Session: "0.50", TokenAccount: s.OwnerAccount,
		Extra: "[keystore]\nidle = \"1m\"\n"}))))(t)
	require.Equal(t, s.EVMNodeURL, c.Networks[EVM].RPC)
	require.Equal(t, s.OwnerAccount, c.Networks[Solana].TokenAccount)
	for network, node := range c.Nodes() { // the demo and tests never ask anybody's public node
		require.Regexp(t, `^http://127\.0\.0\.1:`, node, network)
	}
	require.Equal(t, s.Loopback, c.Policy.Loopback)
	require.Equal(t, "0.50", c.Budget.Session.String())
	c = must.Get(config.Parse([]byte(s.Config(Rules{Session: "-"}))))(t)
	require.Nil(t, c.Budget.Session)
}

// The node answers by the names that the token's contract has.
func TestSelectors(t *testing.T) {
	for signature, selector := range map[string]string{"balanceOf(address)": callBalanceOf,
		"authorizationState(address,bytes32)": callAuthorizationState, "decimals()": callDecimals} {
		require.Equal(t, selector, hex.EncodeToString(Keccak(signature)[:4]), signature)
	}
}
