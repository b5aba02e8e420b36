package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gagliardetto/solana-go"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/svm"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
	"x402-wallet/x402test/fault"
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

func TestFaultsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range allFaults {
		require.False(t, seen[f], f)
		seen[f] = true
	}
	require.Panics(t, func() { start(t, Options{}).Inject("seller sleeps", 1) })
}

// Each fault does what it says: what the buyer sees, and whether the money moved.
func TestFaults(t *testing.T) {
	const ended = 0 // the connection ended without a whole answer
	s := start(t, Options{Delay: 20 * time.Millisecond})
	payer := newEVMPayer(t, s, USDC)
	var tried []string
	for _, row := range []struct {
		fault   string
		status  int
		receipt string // "", "yes" or an errorReason
		moved   bool
	}{
		{"", 200, "yes", true},
		{fault.FacilitatorRefusesVerify, 402, "", false},
		{fault.FacilitatorRefuses, 402, "unexpected_settle_error", false},
		{fault.FacilitatorFails, 502, "", false},
		{fault.FacilitatorCutsBefore, 502, "", false},
		{fault.FacilitatorCutsAfter, 502, "", true},
		{fault.FacilitatorLies, 200, "yes", false},
		{fault.FacilitatorPending, 402, "settlement_pending", true},
		{fault.FacilitatorNeverLands, 402, "settlement_pending", false},
		{fault.FacilitatorDown, 502, "", false},
		{fault.SellerAsksAgain, 402, "", false},
		{fault.SellerRaises, 402, "", false},
		{fault.SellerFails, 500, "yes", true},
		{fault.SellerFailsMute, 500, "", true},
		{fault.SellerFalseReceipt, 200, "yes", false},
		{fault.SellerRedirects, 307, "", false},
		{fault.SellerFailsBefore, 500, "", false},
		{fault.SellerOmitsReceipt, 200, "", true},
		{fault.SellerGarblesReceipt, 200, "", true},
		{fault.SellerWrongReceipt, 200, "yes", true},
		{fault.SellerHangsBefore, ended, "", false},
		{fault.SellerHangs, ended, "", true},
		{fault.SellerCutsBefore, ended, "", false},
		{fault.SellerCuts, 200, "yes", true},
		{fault.SellerSlow, 200, "yes", true},
	} {
		tried = append(tried, row.fault)
		t.Run(row.fault, func(t *testing.T) {
			c := testworld.Challenge(t, s.SellerURL+"/weather")
			before := len(s.Settlements())
			if row.fault != "" {
				s.Inject(row.fault, 1)
			}
			patience := 20 * time.Second
			if row.fault == fault.SellerHangsBefore || row.fault == fault.SellerHangs {
				patience = 500 * time.Millisecond
			}
			answer := testworld.PayWithin(t, patience, s.SellerURL+"/weather", c,
				payer.sign(t, s, c.Accepts[0]).Payload)
			require.Equal(t, row.status, answer.Status)
			require.Equal(t, row.status == ended || row.fault == fault.SellerCuts, answer.Err != nil)
			require.Equal(t, row.moved, len(s.Settlements()) > before)
			receipt, _ := wire.ReadSettlement(answer.Header)
			switch row.receipt {
			case "":
				require.Nil(t, receipt)
			case "yes":
				require.True(t, receipt.Success)
				isTrue := row.moved && row.fault != fault.SellerWrongReceipt
				require.Equal(t, isTrue, s.evm.byHash[receipt.Transaction] != nil)
			default:
				require.Equal(t, row.receipt, receipt.ErrorReason)
				require.NotEqual(t, row.fault == fault.FacilitatorRefuses, receipt.Transaction != "")
			}
			if row.fault != "" { // used up
				require.Equal(t, 200, pay(t, s, "/weather", c, payer.sign(t, s, c.Accepts[0]).Payload).Status)
			}
		})
	}
	for _, fault := range slices.Concat(beforeSettled, afterSettled, whenSettling) {
		require.Contains(t, tried, fault)
	}
	c := testworld.Challenge(t, s.SellerURL+"/weather")
	s.Inject(fault.SellerRaises, math.MaxInt)
	for range 2 {
		answer := pay(t, s, "/weather", c, payer.sign(t, s, c.Accepts[0]).Payload)
		again := must.Get(wire.ReadChallenge(answer.Status, answer.Header, []byte(answer.Body)))(t)
		require.Equal(t, "2000", again.Accepts[0].Amount.String())
	}
	s.Heal()
	require.Equal(t, 200, pay(t, s, "/weather", c, payer.sign(t, s, c.Accepts[0]).Payload).Status)
}

func TestNodeFaults(t *testing.T) {
	s := start(t, Options{Delay: time.Millisecond})
	payer := newEVMPayer(t, s, USDC)
	c := testworld.Challenge(t, s.SellerURL+"/weather")
	a := payer.sign(t, s, c.Accepts[0])
	require.Equal(t, 200, pay(t, s, "/weather", c, a.Payload).Status)
	must.Get(payer.Status(t.Context(), a.Evidence))(t)

	s.Inject(fault.EVMNodeForgets, math.MaxInt)
	require.Equal(t, x402.Open, must.Get(payer.Status(t.Context(), a.Evidence))(t).State)
	s.Heal()
	s.Inject(fault.EVMNodeDown, 1)
	_, err := payer.Status(t.Context(), a.Evidence)
	require.True(t, x402.HasCode(err, x402.RPCError), err)
	s.Inject(fault.EVMNodeElsewhere, 1)
	_, err = newEVMPayer(t, s, 0).Funds(t.Context(), EVM, s.evm.Asset)
	require.True(t, x402.HasCode(err, x402.CheckFailed), err)
}

type solanaPayer struct{ private solana.PrivateKey }

func (p solanaPayer) Address() string { return p.private.PublicKey().String() }

func (p solanaPayer) Sign(_ context.Context, d onchain.Draft) ([]byte, error) {
	signature := sign(p.private, d.Signs[0])
	return signature[:], nil
}

// The wallet's own Solana code and this package's, written apart, understand each other.
func TestTheWalletsSolana(t *testing.T) {
	s := start(t, Options{Finality: time.Second})
	agent := solanaPayer{newKey()}
	wallet := svm.New(svm.Options{Signer: agent, RPC: map[string]string{Solana: s.SolanaNodeURL},
		HTTP: &http.Client{}, Rand: rand.Reader, Now: s.Now})
	account := s.Delegate(agent.Address(), 3*mill)
	known := must.Get(decode.AssociatedAccount(s.Owner, s.solana.asset.Address, false))(t)
	require.Equal(t, account, known)

	sign := func() (*wire.Challenge, onchain.Authorization) {
		funds := must.Get(wallet.Funds(t.Context(), Solana, s.solana.asset))(t)
		require.Equal(t, account, funds.Source)
		c := testworld.Challenge(t, s.SellerURL+"/solana")
		a := must.Get(wallet.Authorize(t.Context(), onchain.Order{Requirement: c.Accepts[0],
			Asset: s.solana.asset, Source: funds.Source, Validity: time.Minute, Now: s.Now()}))(t)
		return c, a
	}
	c, a := sign()
	status := must.Get(wallet.Status(t.Context(), a.Evidence))(t)
	require.Equal(t, x402.Open, status.State)
	answer := pay(t, s, "/solana", c, a.Payload)
	require.Equal(t, 200, answer.Status, answer)
	require.EqualValues(t, 2*mill, s.Delegated(account))
	status = must.Get(wallet.Status(t.Context(), a.Evidence))(t)
	require.Equal(t, x402.Settled, status.State)
	require.Equal(t, s.Settlements()[0].Transaction, status.Transaction)

	_, a = sign() // never sent
	s.Advance(155 * slotTime)
	status = must.Get(wallet.Status(t.Context(), a.Evidence))(t)
	require.Equal(t, x402.Expired, status.State, status.Note)
}
