package sandbox

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"x402-wallet/chain/evm"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// submission is what a facilitator is asked about, read strictly.
type submission struct {
	version int
	terms   x402.Requirement
	ceiling money.Amount    // what was signed for; at upto terms.Amount may be less when it is settled
	payload json.RawMessage // the scheme's object

	extensions map[string]json.RawMessage
}

// facilitator answers /supported, /verify, /settle and discovery, as the reference facilitator
// (x402 2.27) does.
func (s *Sandbox) facilitator() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /supported", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.supported())
	})
	mux.HandleFunc("POST /verify", s.verifyCall)
	mux.HandleFunc("POST /settle", s.settleCall)
	mux.HandleFunc("GET /discovery/resources", s.discovery)
	mux.HandleFunc("GET /discovery/search", s.discovery)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, _ := s.soldAt(r)
		if s.strike(path, facilitatorDown) != "" {
			cut()
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *Sandbox) supported() any {
	kinds := []any{}
	onEVM, onSolana := s.options.networks()
	for _, version := range []int{2, 1} {
		for _, network := range []string{onEVM, onSolana} {
			kind := map[string]any{"x402Version": version, "scheme": "exact",
				"network": nameOf(network, version)}
			if network == onSolana {
				kind["extra"] = map[string]any{"feePayer": s.FeePayer}
			}
			kinds = append(kinds, kind)
		}
	}
	kinds = append(kinds, map[string]any{"x402Version": 2, "scheme": x402.Upto, "network": onEVM,
		"extra": map[string]any{"facilitatorAddress": s.Settler}},
		map[string]any{"x402Version": 2, "scheme": x402.BatchSettlement, "network": onEVM,
			"extra": map[string]any{"receiverAuthorizer": s.authorizer.address}})
	return map[string]any{"kinds": kinds, "extensions": []string{x402.EIP2612Sponsoring},
		"signers": map[string]any{"solana:*": []string{s.FeePayer}, "eip155:*": []string{s.Settler}}}
}

// nameOf is a network as a protocol version calls it.
func nameOf(network string, version int) string {
	if name, ok := x402.V1Name(network); ok && version == 1 {
		return name
	}
	return network
}

// readSubmission reads a request and makes sure that payload and requirements speak of the same.
func readSubmission(r *http.Request) (*submission, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, x402.MaxBody+1))
	if err != nil {
		return nil, err
	}
	var request struct {
		Version      int             `json:"x402Version"`
		Payload      json.RawMessage `json:"paymentPayload"`
		Requirements json.RawMessage `json:"paymentRequirements"`
	}
	var payment struct {
		Version  int             `json:"x402Version"`
		Scheme   string          `json:"scheme"`  // V1
		Network  string          `json:"network"` // V1
		Accepted json.RawMessage `json:"accepted"`
		Payload  json.RawMessage `json:"payload"`

		Extensions map[string]json.RawMessage `json:"extensions"`
	}
	if err := x402.DecodeStrict(body, x402.MaxBody, &request); err != nil {
		return nil, reason("invalid_payload")
	}
	if x402.DecodeStrict(request.Payload, x402.MaxBody, &payment) != nil || payment.Payload == nil {
		return nil, reason("invalid_payload")
	}
	comesTo, asked := (*money.Amount)(nil), request.Requirements
	if r.URL.Path == "/settle" {
		comesTo, asked = uptoTerms(payment.Accepted, request.Requirements)
	}
	terms, err := x402.DecodeRequirement(sellersTerms(asked), request.Version)
	switch {
	case request.Version != payment.Version || (request.Version != 1 && request.Version != 2):
		return nil, reason("invalid_x402_version")
	case err != nil:
		return nil, reason("invalid_payment_requirements")
	case request.Version == 1 && (payment.Scheme != terms.Scheme || payment.Network != terms.NetworkName):
		return nil, reason("invalid_payment_requirements")
	case request.Version == 2 && !sameJSON(payment.Accepted, asked):
		return nil, reason("invalid_payment_requirements")
	}
	q := &submission{version: request.Version, terms: terms, ceiling: terms.Amount, payload: payment.Payload,
		extensions: payment.Extensions}
	if comesTo != nil {
		q.terms.Amount = *comesTo
	}
	return q, nil
}

// uptoTerms takes the terms of upto apart, of which a settlement names what the call came to: that, and the
// terms as they were when they were accepted, with the amount that was signed for. Other terms stay as they
// are.
func uptoTerms(accepted, terms json.RawMessage) (comesTo *money.Amount, asked json.RawMessage) {
	var signed, said struct {
		Scheme string
		Amount money.Amount
	}
	var members map[string]any
	err := errors.Join(json.Unmarshal(accepted, &signed), json.Unmarshal(terms, &said),
		json.Unmarshal(terms, &members))
	if err != nil || said.Scheme != x402.Upto {
		return nil, terms
	}
	members["amount"] = signed.Amount.String()
	asked, _ = json.Marshal(members) // of what was JSON: cannot fail
	return &said.Amount, asked
}

// sameJSON compares values: order of keys and blanks do not matter, letter case and numbers'
// spelling do.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// verify checks a payment against its terms, and the chain. signer is who signed it.
func (s *Sandbox) verify(q *submission) (signer string, err error) {
	onEVM, onSolana := s.options.networks()
	isUpto := q.terms.Scheme == x402.Upto && q.terms.Network == onEVM
	if q.terms.Scheme != x402.Exact && !isUpto && !s.byBatch(q) {
		return "", reason("unsupported_scheme")
	}
	if s.byBatch(q) {
		p, err := s.verifyBatch(q)
		if p == nil {
			return "", err
		}
		return p.Config.Payer, err
	}
	switch q.terms.Network {
	case onEVM:
		if q.byPermit2() {
			p, err := s.verifyPermit2(q)
			return p.From, err
		}
		return s.verifyEVM(q)
	case onSolana:
		tx, err := s.verifySolana(q)
		if err != nil {
			return "", err
		}
		return tx.keys[tx.instructions[2].accounts[3]].String(), nil
	}
	return "", reason("invalid_network")
}

// verifyEVM is the reference facilitator's list for EIP-3009 (x402-protocol.md §3.1).
func (s *Sandbox) verifyEVM(q *submission) (string, error) {
	asset := s.evm.asset
	if !strings.EqualFold(q.terms.Asset, asset.Address) {
		return "", reason("asset_not_deployed_contract")
	}
	if q.terms.ExtraString("name") != asset.Name || q.terms.ExtraString("version") != asset.Version {
		return "", reason("invalid_exact_evm_missing_eip712_domain")
	}
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	_, auth, err := s.evm.recover(q.payload)
	switch {
	case errors.Is(err, evm.ErrSignature):
		return "", reason("invalid_exact_evm_signature")
	case err != nil:
		return "", reason("invalid_payload")
	case !strings.EqualFold(auth.To, q.terms.PayTo):
		return auth.From, reason("invalid_exact_evm_recipient_mismatch")
	case auth.Value != q.terms.Amount:
		return auth.From, reason("invalid_exact_evm_payload_authorization_value_mismatch")
	case auth.ValidBefore < s.now().Unix()+youngest:
		return auth.From, reason("invalid_exact_evm_payload_authorization_valid_before")
	}
	_, _, err = s.evm.check(q.payload)
	return auth.From, err
}

// settle verifies and executes; the settlement goes into the books, as one for what is sold at a path. more
// is what its scheme says of it besides.
func (s *Sandbox) settle(q *submission, path string) (done Settlement, more map[string]any, err error) {
	if s.byBatch(q) {
		done, more, err = s.settleBatch(q)
	} else {
		done, err = s.settleNow(q)
	}
	isPayment := err == nil && done.Transaction != "" && done.Payer != batchContract // that pays back
	if isPayment {
		done.Path = path
		s.book(done)
	}
	return done, more, err
}

// settleNow verifies and executes a payment that moves its price at once.
func (s *Sandbox) settleNow(q *submission) (done Settlement, err error) {
	if _, err = s.verify(q); err != nil {
		return done, err
	}
	if s.full() {
		return done, refusesFull
	}
	switch onEVM := q.terms.Network == s.evm.asset.Network; {
	case onEVM && q.byPermit2():
		done, err = s.settlePermit2(q)
	case onEVM:
		s.evm.mu.Lock()
		defer s.evm.mu.Unlock()
		done, err = s.evm.execute(s.Settler, q.payload)
	default:
		tx, errTx := s.verifySolana(q)
		if errTx != nil {
			return done, errTx
		}
		tx.signatures[0] = ed25519.Sign(s.feeKey, tx.message)
		s.solana.mu.Lock()
		defer s.solana.mu.Unlock()
		done, err = s.solana.execute(tx)
		err = solanaReason(err)
	}
	return done, err
}

// soldAt is the path of the seller for which it asks the facilitator itself.
func (s *Sandbox) soldAt(r *http.Request) (path string, isSellers bool) {
	return strings.CutPrefix(r.Header.Get(sellerMark), s.SellerURL)
}

// noteDirect records a payment that a wallet brought itself; the seller's own calls carry a mark.
func (s *Sandbox) noteDirect(r *http.Request, q *submission) {
	if _, isSellers := s.soldAt(r); !isSellers {
		s.present(q.payload)
	}
}

func (s *Sandbox) verifyCall(w http.ResponseWriter, r *http.Request) {
	q, err := readSubmission(r)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]any{"isValid": false, "invalidReason": err.Error()})
		return
	}
	s.noteDirect(r, q)
	signer, err := s.verify(q)
	if path, _ := s.soldAt(r); s.strike(path, facilitatorRefusesVerify) != "" {
		err = reason("unexpected_verify_error")
	}
	answer := map[string]any{"isValid": err == nil, "payer": signer}
	if err == nil && s.byBatch(q) {
		answer["extra"] = s.channelExtra(q)
	}
	if err != nil {
		answer["invalidReason"] = err.Error()
	}
	writeJSON(w, http.StatusOK, answer)
}

// settleCall answers /settle, truly or as the injected fault says.
func (s *Sandbox) settleCall(w http.ResponseWriter, r *http.Request) {
	q, err := readSubmission(r)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]any{"success": false, "errorReason": err.Error(),
			"transaction": "", "network": ""})
		return
	}
	s.noteDirect(r, q)
	path, _ := s.soldAt(r)
	fault := s.strike(path, whenSettling...)
	if s.insteadOfSettling(w, q, fault) {
		return
	}
	done, more, err := s.settle(q, path)
	switch fault {
	case facilitatorCutsAfter:
		cut()
	case facilitatorPending:
		err = reason("settlement_pending")
	}
	answer := settled(q, done.Transaction, err)
	answer["payer"] = done.Signer
	if q.terms.Scheme == x402.Upto && err == nil {
		answer["amount"] = q.terms.Amount
	}
	if err == nil {
		maps.Copy(answer, more)
	}
	writeJSON(w, http.StatusOK, answer)
}

// insteadOfSettling plays the faults in which nothing is settled; false when the fault is none of
// these.
func (s *Sandbox) insteadOfSettling(w http.ResponseWriter, q *submission, fault string) bool {
	switch fault {
	case facilitatorRefuses:
		writeJSON(w, http.StatusOK, settled(q, "", reason("unexpected_settle_error")))
	case facilitatorFails:
		http.Error(w, "upstream error", http.StatusInternalServerError)
	case facilitatorCutsBefore:
		cut()
	case facilitatorLies:
		writeJSON(w, http.StatusOK, settled(q, inventedTransaction(q.terms.Network, s.now()), nil))
	case facilitatorNeverLands:
		writeJSON(w, http.StatusOK, settled(q, inventedTransaction(q.terms.Network, s.now()),
			reason("settlement_pending")))
	default:
		return false
	}
	return true
}

// settled is a SettleResponse.
func settled(q *submission, transaction string, err error) map[string]any {
	answer := map[string]any{"success": err == nil, "transaction": transaction,
		"network": q.terms.NetworkName}
	if err != nil {
		answer["errorReason"] = err.Error()
	}
	return answer
}

// inventedTransaction looks like one of the network's transactions and is none.
func inventedTransaction(network string, now time.Time) string {
	hash := hashOf("invented", now.UnixNano())
	if strings.HasPrefix(network, "eip155:") {
		return hash
	}
	return encode58([]byte(hash[:64]))
}

// discovery lists what the seller sells, as the Bazaar does; what is sold in a way of its own is found by
// its path alone.
func (s *Sandbox) discovery(w http.ResponseWriter, r *http.Request) {
	query := strings.ToLower(r.URL.Query().Get("query"))
	items := []any{}
	goods := s.goodsNow()
	for _, path := range slices.Sorted(maps.Keys(goods)) {
		p := goods[path]
		isOwn := p.signIn || p.way != ""
		if p.price == 0 || isOwn || !strings.Contains(strings.ToLower(path+" "+p.about), query) {
			continue
		}
		items = append(items, map[string]any{
			"resource": s.SellerURL + path, "type": "http", "x402Version": 2,
			"accepts": s.offers(path, p, 2, 1), "description": p.about,
			"mimeType": p.mimeType(), "lastUpdated": s.now().UTC().Format(time.RFC3339),
		})
	}
	answer := map[string]any{"x402Version": 2, "items": items, "pagination": map[string]any{"limit": 20,
		"offset": 0, "total": len(items)}}
	if strings.HasSuffix(r.URL.Path, "/search") {
		answer = map[string]any{"x402Version": 2, "resources": items, "pagination": nil}
	}
	writeJSON(w, http.StatusOK, answer)
}

// solanaReason puts the cluster's error into the facilitator's words.
func solanaReason(err error) error {
	var why *runError
	if !errors.As(err, &why) {
		return err
	}
	if why.kind == "AlreadyProcessed" {
		return reason("duplicate_settlement")
	}
	return reason(fmt.Sprintf("transaction_simulation_failed: %s", why))
}
