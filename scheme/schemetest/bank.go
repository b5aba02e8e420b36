package schemetest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Bank cashes the cheques of one account, each once, and sells for them. It is safe for concurrent use.
type Bank struct {
	Account string // whose cheques it cashes
	Token   x402.AssetInfo
	PayTo   string // the seller's account

	mu      sync.Mutex
	balance money.Amount
	cashed  map[string]money.Amount // by the cheque's nonce
	isMute  bool
	isLazy  bool
	ahead   time.Duration
}

// NewBank makes a bank with so much in the account.
func NewBank(account, payTo string, token x402.AssetInfo, balance money.Amount) *Bank {
	return &Bank{Account: account, Token: token, PayTo: payTo, balance: balance,
		cashed: map[string]money.Amount{}}
}

// Balance is what is left in the account.
func (b *Bank) Balance() money.Amount {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.balance
}

// Cashed is how many cheques were cashed.
func (b *Bank) Cashed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.cashed)
}

// Answer has the seller answer, or hang up after (mute) or instead of (lazy) cashing.
func (b *Bank) Answer(isMute, isLazy bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isMute, b.isLazy = isMute, isLazy
}

// Wait puts the bank's clock forward.
func (b *Bank) Wait(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ahead += d
}

func (b *Bank) now() time.Time { return time.Now().Add(b.ahead) }

func (b *Bank) status(e x402.Evidence) x402.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, isCashed := b.cashed[e.Nonce]
	switch {
	case isCashed:
		return x402.Status{State: x402.Settled, Transaction: e.Nonce, At: b.now()}
	case b.now().Unix() > e.ValidBefore:
		return x402.Status{State: x402.Expired, At: b.now()}
	}
	return x402.Status{Unused: true}
}

// cash checks a cheque as a stranger would, and moves its money.
func (b *Bank) cash(sent []byte) (nonce string, err error) {
	var payment struct {
		Payload Cheque `json:"payload"`
	}
	if err := json.Unmarshal(sent, &payment); err != nil {
		return "", err
	}
	a, err := message.DecodeAuthorization(payment.Payload.Cheque)
	if err != nil {
		return "", err
	}
	digest, err := payload.Digest(b.Token, a)
	if err != nil {
		return "", err
	}
	var signature [65]byte
	if err := message.DecodeHex(signature[:], payment.Payload.Signature); err != nil {
		return "", err
	}
	by, err := message.SignerOf(digest, signature)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	nonce = message.Hex(a.Nonce[:])
	_, again := b.cashed[nonce]
	if again || !message.SameAddress(by.Hex(), b.Account) || !message.SameAddress(a.From, b.Account) ||
		!message.SameAddress(a.To, b.PayTo) || b.now().Unix() >= a.ValidBefore || b.balance.Cmp(a.Value) < 0 {
		return "", errors.New("the bank does not cash it")
	}
	b.balance = b.balance.SubFloor(a.Value)
	b.cashed[nonce] = a.Value
	return nonce, nil
}

// ServeHTTP sells what is at any path for the amount in the query: ?amount=50000.
func (b *Bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	encode := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.StdEncoding.EncodeToString(text)
	}
	b.mu.Lock()
	isMute, isLazy := b.isMute, b.isLazy
	b.mu.Unlock()
	shown := r.Header.Get("PAYMENT-SIGNATURE")
	if shown != "" && isLazy {
		panic(http.ErrAbortHandler)
	}
	if shown != "" {
		sent, _ := base64.StdEncoding.DecodeString(shown)
		nonce, err := b.cash(sent)
		if isMute {
			panic(http.ErrAbortHandler)
		}
		if err == nil {
			w.Header().Set("PAYMENT-RESPONSE", encode(map[string]any{"success": true, "transaction": nonce,
				"network": b.Token.Network, "payer": b.Account}))
			_, _ = w.Write([]byte("the goods"))
			return
		}
	}
	w.Header().Set("PAYMENT-REQUIRED", encode(map[string]any{"x402Version": 2, "error": "Payment required",
		"resource": map[string]string{"url": "http://" + r.Host + r.URL.String()},
		"accepts": []any{map[string]any{"scheme": Name, "network": b.Token.Network,
			"amount": r.URL.Query().Get("amount"), "asset": b.Token.Address, "payTo": b.PayTo,
			"maxTimeoutSeconds": 60, "extra": map[string]any{}}}}))
	w.WriteHeader(http.StatusPaymentRequired)
}
