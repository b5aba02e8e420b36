package sandbox

import (
	"io"
	"maps"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The control of a sandbox by HTTP, for programs in any language: POST /script does what a script says, GET
// /payments, /balance and /state tell what is. It is on loopback, as all of the sandbox, and no web page can
// use it: what comes from one names its origin, or another host.

// Paid is a payment as JSON tells it.
type Paid struct {
	Network     string `json:"network"` // CAIP-2
	Transaction string `json:"transaction"`
	Payer       string `json:"payer"`  // EVM address, or Solana token account
	Signer      string `json:"signer"` // on Solana the owner of the account, or its delegate
	PayTo       string `json:"payTo"`  // EVM address, or Solana token account
	Amount      string `json:"amount"` // atomic units
	Price       string `json:"price"`  // the same in dollars
	Nonce       string `json:"nonce,omitempty"`
	Path        string `json:"path,omitempty"` // of the sandbox's seller
	At          string `json:"at"`             // by the clock of the chains
}

// JSON is the payment as it is told.
func (p Settlement) JSON() Paid {
	return Paid{Network: p.Network, Transaction: p.Transaction, Payer: p.Payer, Signer: p.Signer,
		PayTo: p.PayTo, Amount: strconv.FormatUint(p.Amount, 10), Price: Dollars(p.Amount), Nonce: p.Nonce,
		Path: p.Path, At: p.At.UTC().Format(time.RFC3339Nano)}
}

// Dollars are atomic units as dollars are written.
func Dollars(units uint64) string { return money.Dollars(units).String() }

// Like reports whether a payment is as another one says; what is "" or 0 there is not looked at. EVM
// addresses and nonces are compared whatever the case of their letters, and a Solana address stands for its
// token account.
func (s *Sandbox) Like(p, like Settlement) bool {
	same := func(got, want string) bool {
		return want == "" || got == want || (strings.HasPrefix(want, "0x") && strings.EqualFold(got, want))
	}
	account := func(got, want string) bool {
		k, err := parseKey(want)
		return same(got, want) || (err == nil && got == s.solana.associated(k).String())
	}
	return same(p.Network, like.Network) && same(p.Transaction, like.Transaction) &&
		account(p.Payer, like.Payer) && same(p.Signer, like.Signer) && account(p.PayTo, like.PayTo) &&
		(like.Amount == 0 || p.Amount == like.Amount) && same(p.Nonce, like.Nonce) && same(p.Path, like.Path)
}

func (s *Sandbox) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /script", s.scriptCall)
	mux.HandleFunc("GET /payments", s.paymentsCall)
	mux.HandleFunc("GET /balance", s.balanceCall)
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.state())
	})
	return mux
}

func refuse(w http.ResponseWriter, status int, err error) {
	coded := x402.AsError(err)
	answer := map[string]any{"code": coded.Code, "message": coded.Message}
	if coded.Hint != "" {
		answer["hint"] = coded.Hint
	}
	writeJSON(w, status, map[string]any{"error": answer})
}

func (s *Sandbox) scriptCall(w http.ResponseWriter, r *http.Request) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, x402.Errorf(x402.InvalidArgument,
			"a script is sent as Content-Type: application/json"))
		return
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxScript+1))
	if err != nil || len(text) > maxScript {
		refuse(w, http.StatusRequestEntityTooLarge, x402.Errorf(x402.InvalidArgument,
			"a script has %d bytes at most", maxScript))
		return
	}
	script, err := ReadScript(text)
	if err == nil {
		err = s.Run(script)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	writeJSON(w, http.StatusOK, s.state())
}

// paymentsCall lists the payments that are like the query says, oldest first.
func (s *Sandbox) paymentsCall(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	like := Settlement{}
	for name, into := range map[string]*string{"network": &like.Network, "transaction": &like.Transaction,
		"payer": &like.Payer, "signer": &like.Signer, "payTo": &like.PayTo, "nonce": &like.Nonce,
		"path": &like.Path} {
		*into = query.Get(name)
		query.Del(name)
	}
	if amount := query.Get("amount"); amount != "" && (!IsUnits(amount, &like.Amount) || like.Amount == 0) {
		refuse(w, http.StatusBadRequest, x402.Errorf(x402.InvalidArgument,
			"amount is a number of atomic units, above 0"))
		return
	}
	query.Del("amount")
	for name := range query { // a filter with a typing error would show too much
		refuse(w, http.StatusBadRequest, x402.Errorf(x402.InvalidArgument, "payments have no %q", name))
		return
	}
	list := []Paid{}
	for _, p := range s.Settlements() {
		if s.Like(p, like) {
			list = append(list, p.JSON())
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"payments": list})
}

func (s *Sandbox) balanceCall(w http.ResponseWriter, r *http.Request) {
	address := r.URL.Query().Get("address")
	if checkAddress(address, EVM) != nil && checkAddress(address, Solana) != nil {
		refuse(w, http.StatusBadRequest, x402.Errorf(x402.InvalidArgument, "%q is no address", address))
		return
	}
	units := s.Balance(address)
	writeJSON(w, http.StatusOK, map[string]any{"address": address, "dollars": Dollars(units),
		"amount": strconv.FormatUint(units, 10)})
}

// Offer is something that the seller sells, as JSON tells it.
type Offer struct {
	Path     string   `json:"path"`
	URL      string   `json:"url"`
	Price    string   `json:"price"` // dollars
	Networks []string `json:"networks,omitempty"`
	Scheme   string   `json:"scheme,omitempty"`
	About    string   `json:"description,omitempty"`
}

// Offers lists what the seller sells, by path.
func (s *Sandbox) Offers() []Offer {
	list, goods := []Offer{}, s.goodsNow()
	for path, p := range goods {
		o := Offer{Path: path, URL: s.SellerURL + path, Price: Dollars(p.price), About: p.Description}
		if p.price > 0 {
			o.Networks, o.Scheme = p.networks, x402.Exact
		}
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b Offer) int { return strings.Compare(a.Path, b.Path) })
	return list
}

func (s *Sandbox) state() map[string]any {
	offers := s.Offers()
	s.mu.Lock()
	defer s.mu.Unlock()
	faults := []ScriptFault{}
	for at, n := range s.faults {
		switch {
		case n == math.MaxInt:
			faults = append(faults, ScriptFault{Fault: at.fault, Path: at.path, Always: true})
		case n > 0:
			faults = append(faults, ScriptFault{Fault: at.fault, Path: at.path, Times: &n})
		}
	}
	slices.SortFunc(faults, func(a, b ScriptFault) int {
		return strings.Compare(a.Fault+a.Path, b.Fault+b.Path)
	})
	return map[string]any{"products": offers, "faults": faults,
		"presentations": s.presentations, "signatures": len(s.presented),
		"requests": maps.Clone(s.asked), "served": maps.Clone(s.served)}
}
