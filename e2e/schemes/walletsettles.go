package schemes

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"x402-wallet/internal/sandbox"
)

// What stands in front of a path of the seller's, as in /settle-first/weather, to buy from one who takes
// only the transaction of a payment that the wallet settled. Such sellers are those of the ozskr wallet.
const (
	settleFirst    = "settle-first"    // asks in the header X-Payment-Required
	settlePlain    = "settle-plain"    // asks in X-Payment-Amount, -Recipient, -Token and -Network
	ignoresPayment = "ignores-payment" // asks in X-Payment-Required as if it settled payments itself
)

// WalletSettles adds the sellers for whom the wallet settles. It is an Options.Extend.
func WalletSettles(s *sandbox.Sandbox) sandbox.Extra {
	shop := &proofShop{redeemed: map[string]bool{}}
	return sandbox.Extra{Seller: func(others http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			form, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
			switch form {
			case settleFirst, settlePlain, ignoresPayment:
				shop.sell(s, w, r, form, "/"+path)
			default:
				others.ServeHTTP(w, r)
			}
		})
	}}
}

// proofShop remembers which transactions have paid for something.
type proofShop struct {
	mu       sync.Mutex
	redeemed map[string]bool
}

func (p *proofShop) sell(s *sandbox.Sandbox, w http.ResponseWriter, r *http.Request, form, path string) {
	sale := s.NewSale(w, r, "v2", path)
	if sale == nil {
		http.NotFound(w, r)
		return
	}
	proof := r.Header.Get("X-PAYMENT-SIGNATURE")
	if sale.Price() == 0 || (proof != "" && p.redeem(sale, proof)) {
		sale.Deliver("")
		return
	}
	askForProof(sale, form)
}

// redeem takes a transaction that is on chain and pays this price to this seller, once.
func (p *proofShop) redeem(s *sandbox.Sale, transaction string) bool {
	for _, paid := range s.Settlements() {
		isPayee := paid.PayTo == s.PayToEVM || paid.PayTo == s.AccountOf(s.PayToSolana)
		if paid.Transaction == transaction && isPayee && paid.Amount == s.Price() {
			p.mu.Lock()
			defer p.mu.Unlock()
			before := p.redeemed[transaction]
			p.redeemed[transaction] = true
			return !before
		}
	}
	return false
}

// askForProof answers 402. A challenge of settle-first has neither a resource nor extra.
func askForProof(s *sandbox.Sale, form string) {
	offers := s.Offers(2, 1)
	first := offers[0].(map[string]any)
	header := s.W.Header()
	if form == settlePlain {
		for name, key := range map[string]string{"Amount": "amount", "Recipient": "payTo", "Token": "asset",
			"Network": "network"} {
			header.Set("X-Payment-"+name, first[key].(string))
		}
		s.Unpaid([]byte("{}"))
		return
	}
	challenge := map[string]any{"x402Version": 2, "error": "Payment required", "accepts": offers}
	if form == ignoresPayment {
		challenge["resource"] = map[string]any{"url": s.SellerURL + s.Path}
	} else {
		for _, offer := range offers {
			delete(offer.(map[string]any), "extra")
		}
	}
	text, _ := json.Marshal(challenge) // of maps of strings: cannot fail
	header.Set("X-Payment-Required", base64.StdEncoding.EncodeToString(text))
	s.Unpaid([]byte("{}"))
}
