package x402test_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"x402-wallet/facilitator"
	"x402-wallet/paywall"
	"x402-wallet/paywall/book"
	"x402-wallet/x402test"
	"x402-wallet/x402test/fault"
)

// TestMyShop stands for a test of yours: a handler that is sold, bought by a client that pays.
func TestMyShop(t *testing.T) {
	sandbox := x402test.New(t)
	sold, err := book.Make(t.Context(), book.Place{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sold.Close() })
	charging, err := paywall.New(paywall.Options{
		Tools: []paywall.Tool{{Name: "forecast", Accepts: []paywall.Option{
			{Network: sandbox.EVM, PayTo: sandbox.PayToEVM, Price: "0.01"}}}},
		Facilitators: facilitator.New(facilitator.Options{List: []facilitator.Facilitator{
			{Name: "play", URL: sandbox.FacilitatorURL}}}),
		Store: sold,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = charging.Close(context.Background()) })
	shop := httptest.NewServer(charging.HTTP("forecast", http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "rain") })))
	t.Cleanup(shop.Close)

	alice := sandbox.NewAccount(t, "evm", "1.00")
	answer, err := sandbox.Client(alice).Get(shop.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK || string(body) != "rain" {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	sandbox.AssertPaidOnce(t, x402test.Payment{Payer: alice.Address, PayTo: sandbox.PayToEVM, Amount: 10_000})
	sandbox.AssertBalance(t, alice.Address, "0.99")

	// The facilitator loses its answer after it settled: nothing is delivered, and the money has moved.
	sandbox.Fail(t, fault.FacilitatorCutsAfter, 1)
	again, err := sandbox.Client(alice).Get(shop.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Body.Close()
	if again.StatusCode == http.StatusOK {
		t.Error("the shop delivered what it does not know to be paid")
	}
	sandbox.AssertPaid(t, 2, x402test.Payment{PayTo: sandbox.PayToEVM})
}

// TestMyAgent stands for a test of yours: an agent, here the client that pays, meets a seller who lies.
func TestMyAgent(t *testing.T) {
	sandbox := x402test.New(t)
	url := sandbox.Sell(t, "/premium", x402test.Product{Price: "0.05", Content: `{"premium":true}`})
	sandbox.FailAt(t, fault.SellerFalseReceipt, "/premium", 1)

	agent := sandbox.NewAccount(t, "evm", "1.00")
	answer, err := sandbox.Client(agent).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if receipt := x402test.ReceiptOf(answer); receipt == nil || !receipt.Success {
		t.Errorf("the seller's receipt: %+v", receipt)
	}
	sandbox.AssertNothingPaid(t) // whatever the receipt says
	sandbox.AssertBalance(t, agent.Address, "1.00")
}

// What a sandbox sells is seen by a plain client as 402; one that pays gets it.
func Example() {
	sandbox, err := x402test.Start(x402test.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()

	plain, err := http.Get(sandbox.SellerURL + "/weather")
	if err != nil {
		log.Fatal(err)
	}
	plain.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	fmt.Println(plain.StatusCode, plain.Header.Get("PAYMENT-REQUIRED") != "")

	// in a test: account := sandbox.NewAccount(t, "solana", "1.00")
	account, err := sandbox.MakeAccount("solana", "1.00")
	if err != nil {
		log.Fatal(err)
	}
	paid, err := sandbox.Client(account).Get(sandbox.SellerURL + "/solana")
	if err != nil {
		log.Fatal(err)
	}
	defer paid.Body.Close()
	body, err := io.ReadAll(paid.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(paid.StatusCode, string(body))
	for _, p := range sandbox.PaymentsLike(x402test.Payment{Payer: account.TokenAccount}) {
		fmt.Println(p.Amount, p.Transaction == x402test.ReceiptOf(paid).Transaction)
	}
	// Output:
	// 402 true
	// 200 {"city":"Lisbon","highTide":"14:05","metres":3.4}
	// 1000 true
}
