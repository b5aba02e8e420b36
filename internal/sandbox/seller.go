package sandbox

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/wire"
	"x402-wallet/x402test/fault"
)

// dialects may stand in front of a path, as in /v1/weather; v2 is the default.
var dialects = []x402.Dialect{"v2", "v2-body", "v1", onTempo}

// dialectOf is the dialect in front of a path, and what is behind it.
func dialectOf(path string) (dialect x402.Dialect, rest string) {
	for _, d := range dialects {
		if rest, found := strings.CutPrefix(path, "/"+string(d)+"/"); found {
			return d, "/" + rest
		}
	}
	return "v2", path
}

const (
	validity   = 60                 // seconds: maxTimeoutSeconds of an offer, unless its product says another
	sellerMark = "X-Sandbox-Seller" // tells the facilitator the seller's own calls, and for which URL
)

// seller answers every path, in every dialect.
func (s *Sandbox) seller() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dialect, path := dialectOf(r.URL.Path)
		sale := s.NewSale(w, r, dialect, path)
		if sale == nil {
			http.NotFound(w, r)
			return
		}
		if dialect == onTempo {
			s.sellOnTempo(sale)
			return
		}
		sale.Answer()
	})
}

// Sale is one request to the seller. Extra.Seller may change its members before the request is answered.
type Sale struct {
	*Sandbox
	W       http.ResponseWriter
	R       *http.Request
	Path    string
	dialect x402.Dialect
	product product

	// Status is that of a refusal.
	Status int
	// Offers are the ways to pay, at so many times the price.
	Offers func(version int, times uint64) []any
	// Extensions are those of a challenge.
	Extensions map[string]any
	// Refuse asks for payment, for a reason and at so many times the price.
	Refuse func(why string, times uint64)
	// Note notes a payment that was presented.
	Note func(payload []byte)
	// Collect takes a payment: it has the facilitator verify and settle, and delivers.
	Collect func(submission []byte, payload json.RawMessage)
	// Settling changes what the facilitator is asked to settle.
	Settling func(submission []byte) []byte
	// Receipt writes the facilitator's receipt, base64, into the answer's headers.
	Receipt func(encoded string)
}

// NewSale counts a request for a path of the seller. It returns nil if nothing is sold there.
func (s *Sandbox) NewSale(w http.ResponseWriter, r *http.Request, dialect x402.Dialect, path string) *Sale {
	p, known := s.sold(path)
	if !known {
		return nil
	}
	s.count(s.asked, path)
	sale := &Sale{Sandbox: s, W: w, R: r, Path: path, Status: http.StatusPaymentRequired,
		dialect: dialect, product: p}
	sale.Offers = func(version int, times uint64) []any { return s.offers(path, p, version, times) }
	sale.Refuse, sale.Note, sale.Collect = sale.Ask, s.Present, sale.collect
	sale.Receipt = func(encoded string) { w.Header().Set(wire.ReceiptHeader(dialect.Version()), encoded) }
	sale.Settling = func(submission []byte) []byte { return submission }
	return sale
}

// Price is what one call costs, in atomic units.
func (s *Sale) Price() uint64 { return s.product.price }

func (s *Sale) version() int { return s.dialect.Version() }

// Answer delivers what is free or paid, and asks for payment otherwise.
func (s *Sale) Answer() {
	payment := s.R.Header.Get("PAYMENT-SIGNATURE")
	if s.version() == 1 {
		payment = s.R.Header.Get("X-PAYMENT")
	}
	switch {
	case s.product.price == 0:
		s.Deliver("")
	case payment == "":
		s.Refuse("Payment required", 1)
	default:
		submission, payload, err := s.read(payment)
		s.Take(submission, payload, err)
	}
}

// Ask is the 402, at so many times the price.
func (s *Sale) Ask(why string, times uint64) {
	accepts := s.Offers(s.version(), times)
	challenge := map[string]any{"x402Version": s.version(), "error": why, "accepts": accepts}
	if s.version() == 2 {
		challenge["resource"] = map[string]any{"url": s.SellerURL + s.Path,
			"description": s.product.Description, "mimeType": s.product.mimeType()}
		if len(s.Extensions) > 0 {
			challenge["extensions"] = s.Extensions
		}
	}
	text, _ := json.Marshal(challenge) // of maps of strings: cannot fail
	if s.dialect == "v2" {
		s.W.Header().Set("PAYMENT-REQUIRED", base64.StdEncoding.EncodeToString(text))
		text = []byte("{}")
	}
	s.Unpaid(text)
}

func (s *Sale) Unpaid(body []byte) {
	s.W.Header().Set("Content-Type", "application/json")
	s.W.Header().Set("Cache-Control", "no-store")
	s.W.WriteHeader(s.Status)
	s.W.Write(body)
}

// Take takes a payment that was read: verify, run, settle, serve. Faults come where they belong.
func (s *Sale) Take(submission []byte, payload json.RawMessage, err error) {
	if err != nil {
		s.Refuse(err.Error(), 1)
		return
	}
	s.Note(payload)
	switch s.strikeAt(s.Path, beforeSettled...) {
	case fault.SellerAsksAgain:
		s.Refuse("Payment required", 1)
	case fault.SellerRaises:
		s.Refuse("Payment required", 2)
	case fault.SellerFalseReceipt:
		s.Deliver(s.falseReceipt())
	case fault.SellerRedirects:
		elsewhere := strings.Replace(s.SellerURL, "127.0.0.1", "localhost", 1)
		http.Redirect(s.W, s.R, elsewhere+s.R.URL.Path, http.StatusTemporaryRedirect)
	case fault.SellerFailsBefore:
		s.fail()
	case fault.SellerHangsBefore:
		s.hang(s.R)
	case fault.SellerCutsBefore:
		Cut()
	default:
		s.Collect(submission, payload)
	}
}

func (s *Sale) fail() {
	http.Error(s.W, "the thermometer is broken", http.StatusInternalServerError)
}

func (s *Sale) falseReceipt() string {
	network := s.product.networks[0]
	text, _ := json.Marshal(map[string]any{
		"success": true, "transaction": inventedTransaction(network, s.Now()),
		"network": nameOf(network, s.version()),
	})
	return base64.StdEncoding.EncodeToString(text)
}

func (s *Sale) collect(submission []byte, _ json.RawMessage) {
	var verdict struct {
		IsValid       bool   `json:"isValid"`
		InvalidReason string `json:"invalidReason"`
	}
	if !s.Facilitate("/verify", submission, &verdict) {
		return
	}
	if !verdict.IsValid {
		s.Refuse(verdict.InvalidReason, 1)
		return
	}
	var receipt json.RawMessage
	if s.Facilitate("/settle", s.Settling(submission), &receipt) {
		s.Finish(receipt)
	}
}

// Finish delivers for a receipt of the facilitator that says that it settled, and refuses otherwise.
func (s *Sale) Finish(receipt json.RawMessage) {
	var settled struct{ Success bool }
	encoded := base64.StdEncoding.EncodeToString(receipt)
	if json.Unmarshal(receipt, &settled) == nil && settled.Success {
		s.After(encoded)
		return
	}
	s.Receipt(encoded)
	s.Unpaid([]byte("{}"))
}

// After serves what was paid for, or does what the fault says.
func (s *Sale) After(receipt string) {
	switch s.strikeAt(s.Path, afterSettled...) {
	case fault.SellerFails:
		s.Receipt(receipt)
		s.fail()
		return
	case fault.SellerFailsMute:
		s.fail()
		return
	case fault.SellerHangs:
		s.hang(s.R)
	case fault.SellerCuts:
		s.Receipt(receipt)
		s.W.Header().Set("Content-Type", "application/json")
		s.W.Header().Set("Content-Length", strconv.Itoa(len(s.product.Content)))
		s.W.Write([]byte(s.product.Content)[:len(s.product.Content)/2])
		http.NewResponseController(s.W).Flush()
		Cut()
	case fault.SellerSlow:
		s.wait(s.R, time.After(s.options.Delay))
	case fault.SellerOmitsReceipt:
		receipt = ""
	case fault.SellerGarblesReceipt:
		receipt = "bm90IGEgcmVjZWlwdA==" // base64, and no JSON
	case fault.SellerWrongReceipt:
		receipt = s.falseReceipt()
	}
	s.Deliver(receipt)
}

// Deliver is the content, with a receipt unless it is empty.
func (s *Sale) Deliver(receipt string) {
	if receipt != "" {
		s.Receipt(receipt)
	}
	s.count(s.served, s.Path)
	s.W.Header().Set("Content-Type", s.product.mimeType())
	s.W.Header().Set("Cache-Control", "private")
	io.WriteString(s.W, s.product.Content)
}

// read decodes a payment header and finds the offer it accepts. submission is the facilitator's
// request.
func (s *Sale) read(header string) (submission []byte, payload json.RawMessage, err error) {
	text, err := base64.StdEncoding.Strict().DecodeString(header)
	if err != nil {
		return nil, nil, Reason("invalid_payload")
	}
	var payment presented
	if x402.DecodeStrict(text, x402.MaxHeader, &payment) != nil || payment.Version != s.version() {
		return nil, nil, Reason("invalid_payload")
	}
	for _, offer := range s.Offers(s.version(), 1) {
		raw, _ := json.Marshal(offer)
		isForIt := payment.Scheme == x402.Exact && payment.Network == offer.(map[string]any)["network"]
		if s.version() == 2 {
			isForIt = sameJSON(raw, payment.Accepted)
		}
		if isForIt {
			submission = fmt.Appendf(nil, `{"x402Version":%d,"paymentPayload":%s,"paymentRequirements":%s}`,
				s.version(), text, raw)
			return submission, payment.Payload, nil
		}
	}
	return nil, nil, Reason("No matching payment requirements")
}

// Facilitate calls the facilitator as a seller does, and reads its answer into a value. Where that is not
// 200 or 400 with JSON it answers the request itself, and returns false.
func (s *Sale) Facilitate(path string, submission []byte, into any) (ok bool) {
	err := s.facilitate(path, submission, into)
	if err != nil {
		http.Error(s.W, "the facilitator did not answer", http.StatusBadGateway)
	}
	return err == nil
}

func (s *Sale) facilitate(path string, submission []byte, into any) error {
	request, err := http.NewRequestWithContext(s.R.Context(), http.MethodPost, s.FacilitatorURL+path,
		bytes.NewReader(submission))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(sellerMark, s.SellerURL+s.Path)
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, x402.MaxBody))
	if err == nil && response.StatusCode != http.StatusOK && response.StatusCode != http.StatusBadRequest {
		err = fmt.Errorf("status %d", response.StatusCode)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, into)
}
