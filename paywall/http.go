package paywall

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"x402-wallet/internal/steps"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402/wire"
)

const (
	// maxBody bounds a request's body, which is held in memory while its payment is checked.
	maxBody = 16 << 20
	// maxAnswer bounds an answer, which is held in memory until its payment is settled.
	maxAnswer = 32 << 20
)

// HTTP charges for what a handler serves; name is the Tool with its price. The answer is held back
// until its payment is settled, so a handler that streams or takes over the connection cannot be
// sold. An answer of 400 and above is a failure: it is not settled. HTTP panics where the name has
// no price, because then nobody would be charged.
func (w *Paywall) HTTP(name string, next http.Handler) http.Handler {
	t := w.tools[name]
	if t == nil {
		panic(fmt.Sprintf("paywall: %q has no price", name))
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if t.Free {
			next.ServeHTTP(rw, r)
			return
		}
		shown, err := paymentInHeader(r.Header)
		if p := w.protocol(); p != nil && shown == nil && err == nil {
			shown, err = paymentBy(p, r)
		}
		var body []byte
		signIn := ""
		if t.Access > 0 {
			signIn = signInOf(r.Header, nil)
		}
		// without one the buyer is asked for it, and no body is held
		if (shown != nil || signIn != "") && r.Body != http.NoBody {
			var tooLarge error
			body, tooLarge = io.ReadAll(http.MaxBytesReader(rw, r.Body, maxBody))
			if tooLarge != nil {
				http.Error(rw, "the request is too large, or cut off", http.StatusRequestEntityTooLarge)
				return
			}
		}
		origin := w.options.Origin
		if origin == "" {
			origin = map[bool]string{true: "https://", false: "http://"}[r.TLS != nil] + r.Host
		}
		path := r.URL.RequestURI()
		ended := w.sell(r.Context(), request{
			tool: t, call: Call{Tool: t.Name, Header: r.Header},
			resource: cmp.Or(t.Resource, origin+path),
			callHash: sha256.Sum256(bytes.Join([][]byte{[]byte(r.Method), []byte(path), body}, []byte{0})),
			decode:   func() (*payment, error) { return shown, err },
			signIn:   signIn, traceparent: r.Header.Get(steps.Header),
			acknowledge: func(said map[string]any) toolResult {
				return toolResult{value: &bufferedAnswer{Status: http.StatusOK, Body: jsonOf(said),
					Headers: http.Header{"Content-Type": {"application/json"}}}}
			},
			invoke: func(ctx context.Context) (toolResult, error) {
				held := &bufferedAnswer{Headers: http.Header{}}
				again := r.Clone(ctx)
				again.Body = io.NopCloser(bytes.NewReader(body))
				next.ServeHTTP(held, again)
				if held.tooLong {
					return toolResult{}, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
				}
				held.WriteHeader(http.StatusOK)
				return toolResult{value: held, failed: held.Status >= http.StatusBadRequest,
					encode: held.encode, usage: held.usage}, nil
			},
		})
		noteOutcome(r.Context(), ended)
		w.answerHTTP(rw, r, t, ended)
	})
}

// paymentInHeader finds the payment of an HTTP request. Two that differ are an error.
func paymentInHeader(header http.Header) (found *payment, err error) {
	for _, name := range wire.PaymentHeaders() {
		for _, said := range header.Values(name) {
			found, err = found.add(selling.Unwrap(name, said))
			if err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// paymentBy finds the payment of an HTTP request by another protocol. From here on it is one of version 2:
// verified, settled and recorded like any other. nil, nil: there is none.
func paymentBy(p selling.Protocol, r *http.Request) (*payment, error) {
	answer, err := p.Read(r.Header, r.Host)
	if answer == nil {
		return nil, err
	}
	return &payment{Version: 2, answer: answer, Payload: answer.Payload}, nil
}

// answerHTTP writes a sale's outcome (x402 v1 and v2 HTTP transports).
func (w *Paywall) answerHTTP(rw http.ResponseWriter, asked *http.Request, t *tool, r result) {
	header := rw.Header()
	header.Set("Cache-Control", "no-store")
	if r.receipt && r.settlement != nil {
		receipt := base64.StdEncoding.EncodeToString(r.receiptJSON())
		header.Set(wire.ReceiptHeader(r.version), receipt)
		if p := w.protocol(); p != nil && r.byProtocol && r.settlement.Success {
			header.Set(p.Receipt(r.settlement, w.now()))
		}
	}
	switch r.answer {
	case deliver, toolFailed:
		held, _ := r.toolResult.value.(*bufferedAnswer)
		if r.replayed != nil && json.Unmarshal(r.replayed, &held) != nil {
			held = nil
		}
		if held == nil {
			http.Error(rw, r.reason, http.StatusInternalServerError)
			return
		}
		for name, values := range held.Headers {
			if _, ours := header[name]; !ours {
				header[name] = values
			}
		}
		header.Set("Cache-Control", "private") // it is for this buyer, and no cache on the way
		rw.WriteHeader(held.Status)
		_, _ = rw.Write(held.Body)
	case reject:
		status := http.StatusBadRequest
		if errors.Is(r.err, ErrPaymentUsed) {
			status = http.StatusConflict
		}
		writeJSON(rw, status, errorBody(r))
	case unavailable:
		writeJSON(rw, http.StatusBadGateway, errorBody(r))
	default:
		said := w.challengeBody(t, r)
		if r.version == 2 {
			header.Set(wire.HeaderRequired, base64.StdEncoding.EncodeToString(jsonOf(said)))
		}
		if p := w.protocol(); p != nil {
			w.askBy(p, header, t, r, asked.Host)
		}
		writeJSON(rw, http.StatusPaymentRequired, said)
	}
}

func writeJSON(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_, _ = rw.Write(jsonOf(v))
}

// bufferedAnswer is a handler's answer that waits for its payment, and is stored with its sale.
type bufferedAnswer struct {
	Status  int
	Headers http.Header `json:"Header"`
	Body    []byte
	tooLong bool
}

func (h *bufferedAnswer) Header() http.Header { return h.Headers }

func (h *bufferedAnswer) WriteHeader(status int) {
	if h.Status == 0 && status >= http.StatusOK {
		h.Status = status
	}
}

func (h *bufferedAnswer) Write(p []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	h.tooLong = h.tooLong || len(h.Body)+len(p) > maxAnswer
	if h.tooLong {
		return 0, errors.New("the answer is too long to be sold")
	}
	h.Body = append(h.Body, p...)
	return len(p), nil
}

// usage is what the answer says that the call costs, and its length. The header is taken out of it.
func (h *bufferedAnswer) usage() (said string, size func() int) {
	if values := h.Headers.Values(headerCharge); len(values) > 0 {
		said = cmp.Or(values[0], "nothing that can be read")
	}
	h.Headers.Del(headerCharge)
	return said, func() int { return len(h.Body) }
}

func (h *bufferedAnswer) encode() []byte {
	if len(h.Body) > maxReplay {
		return nil
	}
	return jsonOf(h)
}
