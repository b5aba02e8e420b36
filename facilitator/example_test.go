package facilitator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"x402-wallet/facilitator"
)

// A program of its own has a say before a payment is settled, and hears what came of it.
func ExampleHooks() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"success":true,"transaction":"0xabc","network":"eip155:84532"}`)
	}))
	defer service.Close()
	told := make(chan string, 1)
	client := facilitator.New(facilitator.Options{
		List: []facilitator.Facilitator{{Name: "play", URL: service.URL, Networks: []string{"eip155:84532"}}},
		Hooks: facilitator.Hooks{
			BeforeSettle: func(_ context.Context, s facilitator.Submission) error {
				if s.Price > 1_000_000 { // micro-dollars
					return errors.New("above a dollar")
				}
				return nil
			},
			AfterSettle: func(_ context.Context, _ facilitator.Submission, r facilitator.Result) {
				told <- r.Settlement.Transaction
			},
		},
	})
	payment := facilitator.Submission{Network: "eip155:84532", Version: 2, Payload: []byte(`{}`),
		Requirements: []byte(`{}`), Validity: time.Minute, Price: 2_000_000}
	r := client.Settle(context.Background(), payment)
	fmt.Println(r.Outcome == facilitator.NotSent, r.Err)
	payment.Price = 10_000
	r = client.Settle(context.Background(), payment)
	fmt.Println(r.Outcome == facilitator.Settled, <-told)
	// Output:
	// true POLICY_DENIED: a hook refused to have the payment settled: above a dollar
	// true 0xabc
}
