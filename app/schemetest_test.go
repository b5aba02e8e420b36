package app

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/cli"
	"x402-wallet/history"
	"x402-wallet/internal/books"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/must"
	"x402-wallet/pay"
	"x402-wallet/scheme/schemetest"
	"x402-wallet/scheme/schemetest/testcheck"
	"x402-wallet/tools"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// A way to pay is one folder (scheme/schemetest) and one line, as ways has one for each.
func schemeOfTests(account *schemetest.Account) way {
	return way{name: schemetest.Name, asks: schemetest.Way{},
		pays: byFamily[pay.Scheme]{"eip155": account}, check: testcheck.Check{}}
}

const chequeRules = `[budget]
per_call = "0.50"
day = "2.00"
approve_above = "0.20"
[policy]
loopback = [%q]
public_nodes = false
[networks."eip155:84532"]
rpc = "http://127.0.0.1:9"
`

type chequeWorld struct {
	*testing.T
	app     *app
	wallet  *tools.Wallet
	bank    *schemetest.Bank
	account *schemetest.Account
	url     string
}

const chequePass = "correct horse battery staple"

func newChequeWorld(t *testing.T, isRegistered bool) *chequeWorld {
	token, _ := x402.NewRegistry(nil).Named("eip155:84532", "USDC")
	bank := schemetest.NewBank("", "0x90F79bf6EB2c4f870365E785982E1f101E93b906", token,
		money.NewAmount(10_000_000))
	seller := httptest.NewServer(bank)
	t.Cleanup(seller.Close)
	w := &chequeWorld{T: t, bank: bank, url: seller.URL, account: &schemetest.Account{Bank: bank}}
	w.app = newApp(filepath.Join(t.TempDir(), "home"), environ.Env{})
	require.NoError(t, config.MakeHome(w.app.home))
	text := fmt.Sprintf(chequeRules, seller.Listener.Addr())
	require.NoError(t, os.WriteFile(filepath.Join(w.app.home, "config.toml"), []byte(text), 0o600))
	rules := must.Get(config.Parse([]byte(text)))(t)
	keys := must.Get(w.app.CreateWallet(t.Context(), cli.NewWallet{Rules: rules, RulesInPlace: true,
		Passphrase: []byte(chequePass)}))(t)
	require.NoError(t, keys.Close())
	if isRegistered {
		w.app.also = func(p parts) []way {
			w.account.Signer, bank.Account = p.onEVM, p.onEVM.Address()
			return []way{schemeOfTests(w.account)}
		}
	}
	w.wallet = must.Get(w.app.OpenWallet(t.Context(), typed([]byte(chequePass)), nil))(t)
	t.Cleanup(func() { require.NoError(t, w.wallet.Close()) })
	return w
}

func (w *chequeWorld) buys(path string, amount int) (pay.Result, error) {
	return w.wallet.Pay(w.Context(), tools.PayIn{URL: fmt.Sprintf("%s/%s?amount=%d", w.url, path, amount)})
}

func (w *chequeWorld) refused(code x402.Code, path string, amount int) *x402.Error {
	before := w.bank.Cashed()
	_, err := w.buys(path, amount)
	require.True(w, x402.HasCode(err, code), "%v", err)
	require.Equal(w, before, w.bank.Cashed())
	return x402.AsError(err)
}

func (w *chequeWorld) row(id string) tools.HistoryOut {
	return must.Get(w.wallet.History(w.Context(), tools.HistoryIn{PaymentID: id}))(w.T)
}

// The program knows nothing of cheques, and pays, refuses, asks, looks up, shows and exports them.
func TestASchemeIsAFolderAndALine(t *testing.T) {
	newChequeWorld(t, false).refused(x402.InvalidRequirement, "first", 50_000)
	w := newChequeWorld(t, true)
	paid := must.Get(w.buys("first", 50_000))(t)
	require.Contains(t, paid.Content, "the goods")
	require.Equal(t, 1, w.bank.Cashed())
	require.Equal(t, "settled", w.row(paid.PaymentID).Transactions[0].Status)

	// refused: by the way itself, by the owner's limit, by who signs
	require.Contains(t, w.refused(x402.InvalidRequirement, "half", 5_001).Error(), "whole cents")
	w.refused(x402.BudgetExceeded, "dear", 600_000)
	w.account.Write = func(a *message.Authorization3009) { a.Value = money.NewAmount(90_000) }
	require.Contains(t, w.refused(x402.PolicyDenied, "changed", 50_000).Error(), "its amount is not that")
	w.account.Write = nil

	// approved
	asked := w.refused(x402.ApprovalRequired, "approved", 300_000)
	shown := must.Get(w.store().Asked(t.Context(), asked.Details["approvalId"].(string)))(t)
	require.NoError(t, w.app.ApproveTyped(t.Context(), w.store(), shown, []byte(chequePass)))
	require.Contains(t, must.Get(w.buys("approved", 300_000))(t).Content, "the goods")
	w.refused(x402.ApprovalRequired, "approved", 300_000)

	// reconciled: one whose answer was lost, and one that was never cashed
	w.bank.Answer(true, false)
	_, err := w.buys("lost", 60_000)
	require.Error(t, err)
	lost := x402.AsError(err).PaymentID
	w.bank.Answer(false, true)
	_, err = w.buys("never", 70_000)
	require.Error(t, err)
	never := x402.AsError(err).PaymentID
	must.Get(w.wallet.Engine.Reconcile(t.Context()))(t)
	require.Equal(t, "settled", w.row(lost).Transactions[0].Status)
	require.NotEqual(t, "failed", w.row(never).Transactions[0].Status, "it can be cashed still")
	require.Equal(t, 3, w.bank.Cashed())

	// shown and exported
	list := must.Get(w.wallet.History(t.Context(), tools.HistoryIn{}))(t)
	require.Len(t, list.Transactions, 5)
	var out bytes.Buffer
	require.NoError(t, books.Export{Format: "csv"}.Write(t.Context(), &out, w.store(), x402.NewRegistry(nil)))
	require.Contains(t, out.String(), "/approved")
	require.NoError(t, w.wallet.VerifySeals(t.Context(), true))
}

func (w *chequeWorld) store() *history.Store { return w.wallet.Store }
