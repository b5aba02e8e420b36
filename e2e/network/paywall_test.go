package network

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/e2e/testworld"
	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/paywall"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// sellerHome says, in the environment of this test's own program, that it is a seller with its book there;
// sellerFacilitator is whom it asks.
const sellerHome, sellerFacilitator = "NETWORK_TEST_SELLER", "NETWORK_TEST_FACILITATOR"

const payee = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"

// sell is our seller: GET /weather for a tenth of a cent, until the end of its input. In a home of the
// name "nothing" it does no more for a payment than pass it on.
func sell(home string) error {
	ctx := context.Background()
	sold, err := book.Make(ctx, book.Place{Home: home})
	if err != nil {
		return err
	}
	defer sold.Close()
	charging, err := paywall.New(paywall.Options{
		Tools: []paywall.Tool{{Name: "weather", Accepts: []paywall.Option{{Network: sandbox.EVM, PayTo: payee,
			Price: "0.001"}}}},
		Facilitators: facilitator.New(facilitator.Options{List: []facilitator.Facilitator{{Name: "bench",
			URL: os.Getenv(sellerFacilitator)}}}),
		Store: sold,
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	weather := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"weather":"sunny","celsius":21}`)
	}))
	charged := charging.HTTP("weather", weather)
	if filepath.Base(home) == "nothing" {
		charged = passOn(os.Getenv(sellerFacilitator), charged, weather)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /weather", charged)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	fmt.Printf(`{"ports":[%d]}`+"\n", listener.Addr().(*net.TCPAddr).Port)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Shutdown(ctx)
	}()
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return charging.Close(ctx)
}

// passOn is a seller that looks at nothing: it has each payment verified and settled, and serves. No seller
// that asks its facilitator by Go's HTTP client can take less. Whoever shows no payment is asked for one.
func passOn(facilitatorURL string, ask, serve http.Handler) http.Handler {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: buyers}}
	post := func(path string, payment []byte) error {
		body := fmt.Appendf(nil, `{"x402Version":2,"paymentPayload":%s,"paymentRequirements":{}}`, payment)
		answer, err := client.Post(facilitatorURL+path, "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		return must.Err(io.ReadAll(answer.Body))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := r.Header.Get(wire.PaymentHeaders()[0])
		if shown == "" {
			ask.ServeHTTP(w, r)
			return
		}
		payment, err := base64.StdEncoding.DecodeString(shown)
		if err = errors.Join(err, post("/verify", payment), post("/settle", payment)); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		serve.ServeHTTP(w, r)
	})
}

// clerk is a facilitator that costs next to nothing to ask: it looks for two members of a payment, believes
// signatures, and settles each nonce once.
type clerk struct {
	used    sync.Map
	settled atomic.Int64
}

func (c *clerk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	payer, nonce := textMember(body, "from"), textMember(body, "nonce")
	switch r.URL.Path {
	case "/verify":
		fmt.Fprintf(w, `{"isValid":true,"payer":"%s"}`, payer)
	case "/settle":
		_, before := c.used.LoadOrStore(nonce, true)
		if !before {
			c.settled.Add(1)
		}
		fmt.Fprintf(w, `{"success":%t,"transaction":"%s","network":"%s","payer":"%s"}`, !before, nonce,
			sandbox.EVM, payer)
	default:
		fmt.Fprintf(w, `{"kinds":[{"x402Version":2,"scheme":"exact","network":"%s"}],"extensions":[],`+
			`"signers":{}}`, sandbox.EVM)
	}
}

// textMember is the first member of this name in compact JSON, whose value has nothing escaped.
func textMember(body []byte, name string) string {
	_, after, _ := bytes.Cut(body, []byte(`"`+name+`":"`))
	value, _, _ := bytes.Cut(after, []byte{'"'})
	return string(value)
}

const (
	paidRequests = 3000
	buyers       = 32
)

// BenchmarkPaywall is how many paid requests a second a seller answers, on one machine with 32 buyers and a
// facilitator that answers at once: the reference seller, one that only passes payments on, and ours. The
// collector of those two has the target that `x402-wallet paywall` gives its own; of the last one, Go's. What
// the seller computes for each stands beside what buyers and facilitator do.
func BenchmarkPaywall(b *testing.B) {
	c := &clerk{}
	asks := httptest.NewServer(c)
	defer asks.Close()
	chain := must.Get(sandbox.Start(sandbox.Options{}))(b)
	defer func() { require.NoError(b, chain.Close()) }()
	var express float64
	for _, seller := range []string{"x402-express", "nothing", "book", bookOfGo} {
		b.Run(seller, func(b *testing.B) {
			for b.Loop() {
				url, pid := startSeller(b, seller, asks.URL)
				payments := signPayments(b, chain.EVMNodeURL, url, paidRequests+buyers)
				payAll(b, url, payments[:buyers]) // the seller is warm
				before := c.settled.Load()
				sellers, ours := testworld.CPUOf(pid), testworld.CPUOf(os.Getpid())
				begin := time.Now()
				payAll(b, url, payments[buyers:])
				rate := paidRequests / time.Since(begin).Seconds()
				b.ReportMetric(1000*(testworld.CPUOf(pid)-sellers)/paidRequests, "seller-µs")
				b.ReportMetric(1000*(testworld.CPUOf(os.Getpid())-ours)/paidRequests, "others-µs")
				require.EqualValues(b, paidRequests, c.settled.Load()-before)
				b.ReportMetric(rate, "paid/s")
				if seller == "x402-express" {
					express = rate
				} else if express > 0 {
					b.ReportMetric(rate/express, "x-of-express")
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// bookOfGo is our seller with its book and Go's own target for the collector.
const bookOfGo = "book-GOGC=100"

func startSeller(b *testing.B, seller, facilitatorURL string) (url string, pid int) {
	b.Helper()
	var cmd *exec.Cmd
	if seller == "x402-express" {
		options := must.Get(json.Marshal(map[string]string{"facilitator": facilitatorURL, "payTo": payee}))(b)
		cmd = exec.CommandContext(context.Background(), "node", "../lab/parties/seller-plain.mjs",
			string(options))
	} else {
		home, collector := filepath.Join(b.TempDir(), seller), "GOGC=400" // app.paywallGarbage
		require.NoError(b, os.Mkdir(home, 0o700))
		if seller == bookOfGo {
			collector = "GOGC=100"
		}
		cmd = exec.CommandContext(context.Background(), os.Args[0])
		cmd.Env = append(os.Environ(), sellerHome+"="+home, sellerFacilitator+"="+facilitatorURL, collector)
	}
	cmd.Stderr = os.Stderr
	input := must.Get(cmd.StdinPipe())(b)
	output := must.Get(cmd.StdoutPipe())(b)
	require.NoError(b, cmd.Start(), "is the lab prepared? (make prep)")
	b.Cleanup(func() {
		_ = input.Close()
		require.NoError(b, cmd.Wait())
	})
	line := must.Get(bufio.NewReader(output).ReadBytes('\n'))(b)
	ready := must.JSON[struct{ Ports []int }](line)(b)
	return fmt.Sprintf("http://127.0.0.1:%d/weather", ready.Ports[0]), cmd.Process.Pid
}

// signPayments are the headers of payments that were signed for what a seller asks.
func signPayments(b *testing.B, node, url string, n int) (all []http.Header) {
	b.Helper()
	answer := must.Get(http.Get(url))(b) //nolint:gosec // our own seller
	defer answer.Body.Close()
	body := must.Get(io.ReadAll(answer.Body))(b)
	challenge := must.Get(wire.ReadChallenge(answer.StatusCode, answer.Header, body))(b)
	asset, known := x402.NewRegistry(nil).Named(sandbox.EVM, "")
	require.True(b, known)
	pays := evm.New(evm.Options{Signer: testworld.NewEVMKey(b), RPC: map[string]string{sandbox.EVM: node}})
	for range n {
		a := must.Get(pays.Authorize(b.Context(), onchain.Order{Requirement: challenge.Accepts[0],
			Asset: asset, Source: pays.Address(), Validity: time.Minute, Now: time.Now()}))(b)
		payload := must.Get(wire.EncodePayload(challenge, challenge.Accepts[0], a.Payload, nil))(b)
		shown := wire.Attach(challenge.Dialect, payload)
		all = append(all, http.Header{http.CanonicalHeaderKey(shown.Header): {shown.Value}})
	}
	return all
}

// payAll shows each payment once, over a connection of each buyer.
func payAll(b *testing.B, url string, payments []http.Header) {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: buyers}}
	defer client.CloseIdleConnections()
	var next atomic.Int64
	var all sync.WaitGroup
	for range buyers {
		all.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(len(payments)) {
					return
				}
				request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
				if err != nil {
					b.Error(err)
					return
				}
				request.Header = payments[i]
				answer, err := client.Do(request)
				if err != nil {
					b.Error(err)
					return
				}
				body, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || answer.StatusCode != http.StatusOK {
					b.Errorf("%d %s %v", answer.StatusCode, body, err)
					return
				}
			}
		})
	}
	all.Wait()
}
