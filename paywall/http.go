package paywall

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"x402-wallet/x402"
)

const (
	// maxBody bounds a request's body, which is held until its payment is looked at.
	maxBody = 16 << 20
	// maxAnswer bounds an answer, which is held back until it is paid.
	maxAnswer = 32 << 20
)

// HTTP charges for what a handler serves; name has to have a price. The answer is held back until
// its payment is settled, so a handler that streams or takes over the connection cannot be sold. An
// answer of 400 and above is a failure: it is not settled. It panics where the name has no price.
func (w *Wall) HTTP(name string, next http.Handler) http.Handler {
	t := w.tools[name]
	if t == nil {
		panic(fmt.Sprintf("paywall: %q has no price", name))
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if t.Free {
			next.ServeHTTP(rw, r)
			return
		}
		shown, err := shownInHeader(r.Header)
		var body []byte
		if shown != nil { // who shows none is asked for it, and has no body of any size kept
			var cut error
			if body, cut = io.ReadAll(http.MaxBytesReader(rw, r.Body, maxBody)); cut != nil {
				http.Error(rw, "the request is too large, or cut off", http.StatusRequestEntityTooLarge)
				return
			}
		}
		w.sellHTTP(rw, r, t, body, next, func() (*payment, error) { return shown, err })
	})
}

func (w *Wall) sellHTTP(rw http.ResponseWriter, r *http.Request, t *tool, body []byte, next http.Handler,
	show func() (*payment, error)) {
	resource := t.Resource
	if resource == "" {
		scheme := "https"
		if r.TLS == nil {
			scheme = "http"
		}
		resource = scheme + "://" + r.Host + r.URL.RequestURI()
	}
	sold := w.sell(r.Context(), request{
		tool: t, call: Call{Tool: t.Name, Header: r.Header}, resource: resource,
		bind: sha256.Sum256(bytes.Join([][]byte{[]byte(r.Method), []byte(r.URL.RequestURI()), body},
			[]byte{0})),
		show: show,
		do: func(ctx context.Context) (goods, error) {
			held := &heldBack{header: http.Header{}}
			again := r.Clone(ctx)
			again.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(held, again)
			if held.tooLong {
				return goods{}, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
			}
			return goods{value: held, failed: held.code() >= http.StatusBadRequest, keep: held.keep}, nil
		},
	})
	w.answerHTTP(rw, t, sold)
}

// shownInHeader finds the payment of an HTTP request; two that differ are none.
func shownInHeader(header http.Header) (*payment, error) {
	var found *payment
	for _, name := range []string{x402.HeaderPayment, x402.HeaderPaymentV1} {
		for _, said := range header.Values(name) {
			raw, err := unwrap(name, said)
			if err != nil {
				return nil, err
			}
			p, err := decodePayment(raw)
			if err != nil {
				return nil, err
			}
			if found != nil && !sameJSON(found.raw, p.raw) {
				return nil, fmt.Errorf("%w: there are two, and they differ", ErrInvalidRequest)
			}
			found = p
		}
	}
	return found, nil
}

// answerHTTP is a sale's end over HTTP (x402 v1 and v2 HTTP transports).
func (w *Wall) answerHTTP(rw http.ResponseWriter, t *tool, r result) {
	header := rw.Header()
	header.Set("Cache-Control", "no-store")
	if r.receipt && r.settlement != nil {
		name := x402.HeaderReceipt
		if r.version == 1 {
			name = x402.HeaderReceiptV1
		}
		header.Set(name, base64.StdEncoding.EncodeToString(receiptJSON(r.settlement)))
	}
	switch r.answer {
	case delivers, fails:
		held, _ := r.goods.value.(*heldBack)
		if r.kept != nil {
			held = restored(r.kept)
		}
		if held == nil {
			http.Error(rw, r.why, http.StatusInternalServerError)
			return
		}
		held.release(rw)
	case refuses:
		status := http.StatusBadRequest
		if errors.Is(r.err, ErrPaymentUsed) {
			status = http.StatusConflict
		}
		writeJSON(rw, status, w.regret(r))
	case regrets:
		writeJSON(rw, http.StatusBadGateway, w.regret(r))
	default:
		said := w.challenge(t, r, r.sale.Resource)
		if r.version == 2 {
			header.Set(x402.HeaderRequired, base64.StdEncoding.EncodeToString(jsonOf(said)))
		}
		writeJSON(rw, http.StatusPaymentRequired, said)
	}
}

func writeJSON(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_, _ = rw.Write(jsonOf(v))
}

// heldBack is an answer that waits for its payment.
type heldBack struct {
	header  http.Header
	status  int
	body    bytes.Buffer
	tooLong bool
}

func (h *heldBack) Header() http.Header { return h.header }

func (h *heldBack) WriteHeader(status int) {
	if h.status == 0 && status >= http.StatusOK {
		h.status = status
	}
}

func (h *heldBack) code() int { return max(h.status, http.StatusOK) }

func (h *heldBack) Write(p []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	if h.tooLong = h.tooLong || h.body.Len()+len(p) > maxAnswer; h.tooLong {
		return 0, errors.New("the answer is too long to be sold")
	}
	return h.body.Write(p)
}

// keptAnswer is how an answer is written down.
type keptAnswer struct {
	Status int
	Header http.Header
	Body   []byte
}

func (h *heldBack) keep() []byte {
	if h.body.Len() > maxKept {
		return nil
	}
	return jsonOf(keptAnswer{h.code(), h.header, h.body.Bytes()})
}

func restored(text []byte) *heldBack {
	var k keptAnswer
	if json.Unmarshal(text, &k) != nil {
		return nil
	}
	h := &heldBack{header: k.Header, status: k.Status}
	h.body.Write(k.Body)
	return h
}

// release gives it out: to this buyer, and to no cache on the way.
func (h *heldBack) release(rw http.ResponseWriter) {
	for name, values := range h.header {
		if _, ours := rw.Header()[name]; !ours {
			rw.Header()[name] = values
		}
	}
	rw.Header().Set("Cache-Control", "private")
	rw.WriteHeader(h.code())
	_, _ = rw.Write(h.body.Bytes())
}
