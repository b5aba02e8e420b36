package sandbox

import (
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

	"github.com/gagliardetto/solana-go"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402test/fault"
)

// Submission is what a facilitator is asked about, read strictly.
type Submission struct {
	Version int
	Terms   x402.Requirement
	Ceiling money.Amount    // what was signed for; Extra.Terms may make Terms.Amount less
	Payload json.RawMessage // the scheme's object

	Extensions map[string]json.RawMessage
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
		if s.strikeAt(path, fault.FacilitatorDown) != "" {
			Cut()
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *Sandbox) supported() any {
	kinds := []any{}
	onEVM, onSolana := s.Networks()
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
	return map[string]any{"kinds": append(kinds, s.extra.Kinds...),
		"extensions": append([]string{}, s.extra.Extensions...),
		"signers":    map[string]any{"solana:*": []string{s.FeePayer}, "eip155:*": []string{s.Settler}}}
}

// nameOf is a network as a protocol version calls it.
func nameOf(network string, version int) string {
	if name, ok := x402.V1Name(network); ok && version == 1 {
		return name
	}
	return network
}

type presented struct {
	Version  int             `json:"x402Version"`
	Scheme   string          `json:"scheme"`  // V1
	Network  string          `json:"network"` // V1
	Accepted json.RawMessage `json:"accepted"`
	Payload  json.RawMessage `json:"payload"`

	Extensions map[string]json.RawMessage `json:"extensions"`
}

// readSubmission reads a request and makes sure that payload and requirements speak of the same.
func (s *Sandbox) readSubmission(r *http.Request) (*Submission, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, x402.MaxBody+1))
	if err != nil {
		return nil, err
	}
	var request struct {
		Version      int             `json:"x402Version"`
		Payload      json.RawMessage `json:"paymentPayload"`
		Requirements json.RawMessage `json:"paymentRequirements"`
	}
	var payment presented
	if err := x402.DecodeStrict(body, x402.MaxBody, &request); err != nil {
		return nil, Reason("invalid_payload")
	}
	if x402.DecodeStrict(request.Payload, x402.MaxBody, &payment) != nil || payment.Payload == nil {
		return nil, Reason("invalid_payload")
	}
	comesTo, asked := (*money.Amount)(nil), request.Requirements
	readable := asked
	if s.extra.Terms != nil {
		comesTo, asked, readable = s.extra.Terms(r.URL.Path, payment.Accepted, asked)
	}
	terms, err := x402.DecodeRequirement(readable, request.Version)
	switch {
	case request.Version != payment.Version || (request.Version != 1 && request.Version != 2):
		return nil, Reason("invalid_x402_version")
	case err != nil:
		return nil, Reason("invalid_payment_requirements")
	case request.Version == 1 && (payment.Scheme != terms.Scheme || payment.Network != terms.NetworkName):
		return nil, Reason("invalid_payment_requirements")
	case request.Version == 2 && !sameJSON(payment.Accepted, asked):
		return nil, Reason("invalid_payment_requirements")
	}
	q := &Submission{Version: request.Version, Terms: terms, Ceiling: terms.Amount, Payload: payment.Payload,
		Extensions: payment.Extensions}
	if comesTo != nil {
		q.Terms.Amount = *comesTo
	}
	return q, nil
}

// sameJSON compares values: order of keys and blanks do not matter, letter case and numbers'
// spelling do.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// schemeOf is how a payment is verified and settled.
func (s *Sandbox) schemeOf(q *Submission) Scheme {
	if s.extra.Scheme != nil {
		if further := s.extra.Scheme(q); further != nil {
			return *further
		}
	}
	return Scheme{Verify: s.verifyExact, Settle: s.settleExact}
}

// verifyExact checks a payment by exact against its terms, and the chain. signer is who signed it.
func (s *Sandbox) verifyExact(q *Submission) (signer string, more map[string]any, err error) {
	onEVM, onSolana := s.Networks()
	switch {
	case q.Terms.Scheme != x402.Exact:
		err = Reason("unsupported_scheme")
	case q.Terms.Network == onEVM:
		signer, err = s.verifyEVM(q)
	case q.Terms.Network == onSolana:
		tx, errTx := s.verifySolana(q)
		if errTx != nil {
			return "", nil, errTx
		}
		signer = tx.steps[2].accounts[3].PublicKey.String()
	default:
		err = Reason("invalid_network")
	}
	return signer, nil, err
}

// verifyEVM is the reference facilitator's list for EIP-3009.
func (s *Sandbox) verifyEVM(q *Submission) (string, error) {
	asset := s.evm.Asset
	if !strings.EqualFold(q.Terms.Asset, asset.Address) {
		return "", Reason("asset_not_deployed_contract")
	}
	if q.Terms.ExtraString("name") != asset.Name || q.Terms.ExtraString("version") != asset.Version {
		return "", Reason("invalid_exact_evm_missing_eip712_domain")
	}
	s.evm.Lock()
	defer s.evm.Unlock()
	_, auth, err := s.evm.recover(q.Payload)
	switch {
	case err != nil:
		return "", err
	case !strings.EqualFold(auth.To, q.Terms.PayTo):
		return auth.From, Reason("invalid_exact_evm_recipient_mismatch")
	case auth.Value != q.Terms.Amount:
		return auth.From, Reason("invalid_exact_evm_payload_authorization_value_mismatch")
	case auth.ValidBefore < s.Now().Unix()+youngest:
		return auth.From, Reason("invalid_exact_evm_payload_authorization_valid_before")
	}
	_, _, err = s.evm.check(q.Payload)
	return auth.From, err
}

// settle verifies and executes; the settlement goes into the books, as one for what is sold at a path. more
// is what its scheme says of it besides.
func (s *Sandbox) settle(q *Submission, path string) (done Settlement, more map[string]any, err error) {
	done, more, err = s.schemeOf(q).Settle(q)
	if err == nil && done.Transaction != "" && done.Payer != "" {
		done.Path = path
		s.book(done)
	}
	return done, more, err
}

// settleExact verifies and executes a payment that moves its price at once.
func (s *Sandbox) settleExact(q *Submission) (done Settlement, more map[string]any, err error) {
	_, _, err = s.verifyExact(q)
	if err != nil {
		return done, nil, err
	}
	if q.Terms.Network == s.evm.Asset.Network {
		s.evm.Lock()
		defer s.evm.Unlock()
		done, err = s.evm.execute(s.Settler, q.Payload)
		return done, nil, err
	}
	tx, err := s.verifySolana(q)
	if err != nil {
		return done, nil, err
	}
	tx.Signatures[0] = sign(s.feeKey, tx.message)
	s.solana.mu.Lock()
	defer s.solana.mu.Unlock()
	done, err = s.solana.execute(tx)
	return done, nil, solanaReason(err)
}

// soldAt is the path of the seller for which it asks the facilitator itself.
func (s *Sandbox) soldAt(r *http.Request) (path string, isSellers bool) {
	return strings.CutPrefix(r.Header.Get(sellerMark), s.SellerURL)
}

// noteDirect records a payment that a wallet brought itself; the seller's own calls carry a mark.
func (s *Sandbox) noteDirect(r *http.Request, q *Submission) {
	if _, isSellers := s.soldAt(r); !isSellers {
		s.Present(q.Payload)
	}
}

func (s *Sandbox) verifyCall(w http.ResponseWriter, r *http.Request) {
	q, err := s.readSubmission(r)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]any{"isValid": false, "invalidReason": err.Error()})
		return
	}
	s.noteDirect(r, q)
	signer, more, err := s.schemeOf(q).Verify(q)
	if path, _ := s.soldAt(r); s.strikeAt(path, fault.FacilitatorRefusesVerify) != "" {
		err = Reason("unexpected_verify_error")
	}
	answer := map[string]any{"isValid": err == nil, "payer": signer}
	if err == nil {
		maps.Copy(answer, more)
	}
	if err != nil {
		answer["invalidReason"] = err.Error()
	}
	writeJSON(w, http.StatusOK, answer)
}

// settleCall answers /settle, truly or as the injected fault says.
func (s *Sandbox) settleCall(w http.ResponseWriter, r *http.Request) {
	q, err := s.readSubmission(r)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]any{"success": false, "errorReason": err.Error(),
			"transaction": "", "network": ""})
		return
	}
	s.noteDirect(r, q)
	path, _ := s.soldAt(r)
	injected := s.strikeAt(path, whenSettling...)
	if s.insteadOfSettling(w, q, injected) {
		return
	}
	done, more, err := s.settle(q, path)
	switch injected {
	case fault.FacilitatorCutsAfter:
		Cut()
	case fault.FacilitatorPending:
		err = Reason("settlement_pending")
	}
	answer := settled(q, done.Transaction, err)
	answer["payer"] = done.Signer
	if err == nil {
		maps.Copy(answer, more)
	}
	writeJSON(w, http.StatusOK, answer)
}

// insteadOfSettling plays the faults in which nothing is settled; false when the fault is none of
// these.
func (s *Sandbox) insteadOfSettling(w http.ResponseWriter, q *Submission, injected string) bool {
	switch injected {
	case fault.FacilitatorRefuses:
		writeJSON(w, http.StatusOK, settled(q, "", Reason("unexpected_settle_error")))
	case fault.FacilitatorFails:
		http.Error(w, "upstream error", http.StatusInternalServerError)
	case fault.FacilitatorCutsBefore:
		Cut()
	case fault.FacilitatorLies:
		writeJSON(w, http.StatusOK, settled(q, inventedTransaction(q.Terms.Network, s.Now()), nil))
	case fault.FacilitatorNeverLands:
		writeJSON(w, http.StatusOK, settled(q, inventedTransaction(q.Terms.Network, s.Now()),
			Reason("settlement_pending")))
	default:
		return false
	}
	return true
}

func settled(q *Submission, transaction string, err error) map[string]any {
	answer := map[string]any{"success": err == nil, "transaction": transaction,
		"network": q.Terms.NetworkName}
	if err != nil {
		answer["errorReason"] = err.Error()
	}
	return answer
}

// inventedTransaction looks like one of the network's transactions and is none.
func inventedTransaction(network string, now time.Time) string {
	hash := HashOf("invented", now.UnixNano())
	if strings.HasPrefix(network, "eip155:") {
		return hash
	}
	return solana.Signature([]byte(hash[:64])).String()
}

// discovery lists what the seller sells, as the Bazaar does.
func (s *Sandbox) discovery(w http.ResponseWriter, r *http.Request) {
	query := strings.ToLower(r.URL.Query().Get("query"))
	items := []any{}
	goods := s.goodsNow()
	for _, path := range slices.Sorted(maps.Keys(goods)) {
		p := goods[path]
		if p.price == 0 || !strings.Contains(strings.ToLower(path+" "+p.Description), query) {
			continue
		}
		items = append(items, map[string]any{
			"resource": s.SellerURL + path, "type": "http", "x402Version": 2,
			"accepts": s.offers(path, p, 2, 1), "description": p.Description,
			"mimeType": p.mimeType(), "lastUpdated": s.Now().UTC().Format(time.RFC3339),
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
	if why.reason == alreadyProcessed {
		return Reason("duplicate_settlement")
	}
	return Reason(fmt.Sprintf("transaction_simulation_failed: %s", why))
}
