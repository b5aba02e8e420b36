package sandbox

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"x402-wallet/x402"
)

// dialects may stand in front of a path, as in /v1/weather; v2 is the default. The names are those of
// x402.Dialect, but for x-seed: it asks as x-v2 does, and looks for proof of a settlement alone.
var dialects = []x402.Dialect{"v2", "v2-body", "v1", "x-v2", "x-v1", xSeed, "seed-v2", "seed-plain",
	inMPP}

const xSeed = "x-seed"

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
		sale := &sale{Sandbox: s, w: w, r: r}
		sale.dialect, sale.path = dialectOf(r.URL.Path)
		var known bool
		sale.product, known = s.sold(sale.path)
		if !known || (sale.product.way != "" && sale.dialect != "v2") {
			http.NotFound(w, r)
			return
		}
		s.count(s.asked, sale.path)
		sale.answer()
	})
}

// sale is one request to the seller.
type sale struct {
	*Sandbox
	w       http.ResponseWriter
	r       *http.Request
	dialect x402.Dialect
	path    string
	product product

	correction map[string]any // of batch-settlement: what else a challenge says of the channel
}

func (s *sale) version() int { return s.dialect.Version() }

// wantsProof reports whether the seller takes only transactions that the wallet settled.
func (s *sale) wantsProof() bool { return s.dialect.WalletSettles() || s.dialect == xSeed }

func (s *sale) answer() {
	payment := s.r.Header.Get("PAYMENT-SIGNATURE")
	switch {
	case s.dialect == inMPP:
		payment = strings.TrimPrefix(s.r.Header.Get("Authorization"), "Payment ")
	case s.version() == 1:
		payment = s.r.Header.Get("X-PAYMENT")
	}
	proof, signIn := s.r.Header.Get("X-PAYMENT-SIGNATURE"), s.r.Header.Get(x402.HeaderSignIn)
	switch {
	case s.product.price == 0:
		s.deliver("")
	case s.product.signIn && payment == "" && signIn != "":
		s.signedIn(signIn)
	case s.wantsProof() && proof != "":
		s.redeemed(proof)
	case s.wantsProof() || payment == "":
		s.ask("Payment required", 1)
	default:
		s.paid(payment)
	}
}

// ask is the 402, at so many times the price.
func (s *sale) ask(why string, times uint64) {
	accepts := s.accepts(s.version(), times)
	if s.correction != nil {
		maps.Copy(accepts[0].(map[string]any)["extra"].(map[string]any), s.correction)
	}
	challenge := map[string]any{"x402Version": s.version(), "error": why, "accepts": accepts}
	switch {
	case s.dialect == "seed-v2": // the seed's own form has neither resource nor extra
		for _, offer := range accepts {
			delete(offer.(map[string]any), "extra")
		}
	case s.version() == 2:
		challenge["resource"] = map[string]any{"url": s.SellerURL + s.path, "description": s.product.about,
			"mimeType": s.product.mimeType()}
		if extensions := s.extensions(); len(extensions) > 0 {
			challenge["extensions"] = extensions
		}
	}
	text, _ := json.Marshal(challenge) // of maps of strings: cannot fail
	body := []byte("{}")
	header := s.w.Header()
	switch s.dialect {
	case inMPP:
		s.askInMPP(accepts)
	case "v2":
		header.Set("PAYMENT-REQUIRED", base64.StdEncoding.EncodeToString(text))
	case "seed-v2", "x-v2", "x-v1", xSeed:
		header.Set("X-Payment-Required", base64.StdEncoding.EncodeToString(text))
	case "seed-plain":
		offer := accepts[0].(map[string]any)
		for name, key := range map[string]string{"Amount": "amount", "Recipient": "payTo", "Token": "asset",
			"Network": "network"} {
			header.Set("X-Payment-"+name, offer[key].(string))
		}
	default:
		body = text
	}
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	status := http.StatusPaymentRequired
	if why == string(refusesAllowance) { // as the reference server has it
		status = http.StatusPreconditionFailed
	}
	s.w.WriteHeader(status)
	s.w.Write(body)
}

// redeemed serves for a transaction that the wallet settled itself: it must be on chain, pay this
// price to this seller, and not have bought anything yet.
func (s *sale) redeemed(transaction string) {
	var paid Settlement
	for _, settled := range s.Settlements() {
		if settled.Transaction == transaction {
			paid = settled
		}
	}
	if !s.isPayee(s.product, paid.PayTo) || paid.Amount != s.product.price || !s.redeem(transaction) {
		s.ask("the transaction does not pay for this", 1)
		return
	}
	s.deliver("")
}

// paid takes a payment: verify, run, settle, serve. Faults come where they belong.
func (s *sale) paid(header string) {
	submission, payload, err := s.read(header)
	if err != nil {
		s.ask(err.Error(), 1)
		return
	}
	s.present(payload)
	isBatch := s.product.way == x402.BatchSettlement
	if isBatch {
		s.noteVoucher(payload)
	}
	switch s.strike(s.path, beforeSettled...) {
	case sellerAsksAgain:
		s.ask("Payment required", 1)
		return
	case sellerRaises:
		s.ask("Payment required", 2)
		return
	case sellerFalseReceipt:
		s.deliver(s.falseReceipt())
		return
	case sellerRedirects:
		elsewhere := strings.Replace(s.SellerURL, "127.0.0.1", "localhost", 1)
		http.Redirect(s.w, s.r, elsewhere+s.r.URL.Path, http.StatusTemporaryRedirect)
		return
	case sellerFailsBefore:
		http.Error(s.w, "the thermometer is broken", http.StatusInternalServerError)
		return
	case sellerHangsBefore:
		s.hang(s.r)
	case sellerCutsBefore:
		cut()
	}
	if isBatch {
		s.collectBatch(submission, payload)
		return
	}
	s.collect(submission)
}

func (s *sale) falseReceipt() string {
	network := s.product.networks[0]
	text, _ := json.Marshal(map[string]any{
		"success": true, "transaction": inventedTransaction(network, s.now()),
		"network": nameOf(s.named(network), s.version()),
	})
	return base64.StdEncoding.EncodeToString(text)
}

// collect has the facilitator verify and settle.
func (s *sale) collect(submission []byte) {
	var verdict struct {
		IsValid       bool   `json:"isValid"`
		InvalidReason string `json:"invalidReason"`
	}
	answer, err := s.facilitate("/verify", submission)
	if err != nil || json.Unmarshal(answer, &verdict) != nil {
		http.Error(s.w, "the facilitator did not answer", http.StatusBadGateway)
		return
	}
	if !verdict.IsValid {
		s.ask(verdict.InvalidReason, 1)
		return
	}
	if s.product.way == x402.Upto {
		submission = s.comesTo(submission)
	}
	receipt, err := s.facilitate("/settle", submission)
	var settled struct{ Success bool }
	if err != nil || json.Unmarshal(receipt, &settled) != nil {
		http.Error(s.w, "the facilitator did not answer", http.StatusBadGateway)
		return
	}
	encoded := base64.StdEncoding.EncodeToString(bytes.TrimSpace(receipt))
	if !settled.Success {
		s.refuse(encoded)
		return
	}
	s.remember(receipt)
	s.after(encoded)
}

// refuse answers with the facilitator's receipt for what was not settled.
func (s *sale) refuse(receipt string) {
	s.receipt(receipt)
	s.w.Header().Set("Content-Type", "application/json")
	s.w.WriteHeader(http.StatusPaymentRequired)
	s.w.Write([]byte("{}"))
}

// comesTo is what the facilitator is asked to settle at upto: what the call came to.
func (s *sale) comesTo(submission []byte) []byte {
	offer := s.accepts(2, 1)[0].(map[string]any)
	asked, _ := json.Marshal(offer)
	offer["amount"] = strconv.FormatUint(s.product.used, 10)
	used, _ := json.Marshal(offer)
	const key = `"paymentRequirements":`
	return bytes.Replace(submission, append([]byte(key), asked...), append([]byte(key), used...), 1)
}

// after serves what was paid for, or does what the fault says.
func (s *sale) after(receipt string) {
	switch s.strike(s.path, afterSettled...) {
	case sellerFails:
		s.receipt(receipt)
		http.Error(s.w, "the thermometer is broken", http.StatusInternalServerError)
		return
	case sellerFailsMute:
		http.Error(s.w, "the thermometer is broken", http.StatusInternalServerError)
		return
	case sellerHangs:
		s.hang(s.r)
	case sellerCuts:
		s.receipt(receipt)
		s.w.Header().Set("Content-Type", "application/json")
		s.w.Header().Set("Content-Length", strconv.Itoa(len(s.product.content)))
		s.w.Write([]byte(s.product.content)[:len(s.product.content)/2])
		http.NewResponseController(s.w).Flush()
		cut()
	case sellerSlow:
		s.linger(s.r)
	case sellerOmitsReceipt:
		receipt = ""
	case sellerGarblesReceipt:
		receipt = "bm90IGEgcmVjZWlwdA==" // base64, and no JSON
	case sellerWrongReceipt:
		receipt = s.falseReceipt()
	}
	s.deliver(receipt)
}

func (s *sale) receipt(encoded string) {
	if s.dialect == inMPP {
		s.receiptInMPP(encoded)
		return
	}
	name := "PAYMENT-RESPONSE"
	if s.version() == 1 {
		name = "X-PAYMENT-RESPONSE"
	}
	s.w.Header().Set(name, encoded)
}

// deliver is the content, with a receipt unless it is empty.
func (s *sale) deliver(receipt string) {
	if receipt != "" {
		s.receipt(receipt)
	}
	s.count(s.served, s.path)
	s.w.Header().Set("Content-Type", s.product.mimeType())
	s.w.Header().Set("Cache-Control", "private")
	io.WriteString(s.w, s.product.content)
}

// read decodes a payment header and finds the offer it accepts. submission is the facilitator's
// request.
func (s *sale) read(header string) (submission []byte, payload json.RawMessage, err error) {
	if s.dialect == inMPP {
		return s.readCredential(header)
	}
	text, err := base64.StdEncoding.Strict().DecodeString(header)
	if err != nil {
		return nil, nil, reason("invalid_payload")
	}
	var payment struct {
		Version  int             `json:"x402Version"`
		Scheme   string          `json:"scheme"`
		Network  string          `json:"network"`
		Accepted json.RawMessage `json:"accepted"`
		Payload  json.RawMessage `json:"payload"`
	}
	if x402.DecodeStrict(text, x402.MaxHeader, &payment) != nil || payment.Version != s.version() {
		return nil, nil, reason("invalid_payload")
	}
	for _, offer := range s.accepts(s.version(), 1) {
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
	return nil, nil, reason("No matching payment requirements")
}

// facilitate calls the facilitator as a seller does. An answer that is no 200 with JSON is an
// error.
func (s *sale) facilitate(path string, submission []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(s.r.Context(), http.MethodPost, s.FacilitatorURL+path,
		bytes.NewReader(submission))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(sellerMark, s.SellerURL+s.path)
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, x402.MaxBody))
	if err == nil && response.StatusCode != http.StatusOK && response.StatusCode != http.StatusBadRequest {
		err = fmt.Errorf("status %d", response.StatusCode)
	}
	return answer, err
}
