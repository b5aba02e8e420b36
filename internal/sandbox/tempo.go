package sandbox

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"x402-wallet/chain/tempo/decode"
	"x402-wallet/x402"
)

// Play money on Tempo's test net. What is sold at a path is sold there at the same price behind /tempo/, by
// MPP (tempo/charge): the seller pays the network's fee, and sends the transaction that it is shown. As a
// seller of mppx does, it takes several transactions for one challenge, and each transaction once.

const onTempo x402.Dialect = "tempo"

// topicMemo is of TransferWithMemo(address,address,uint256,bytes32).
const topicMemo = "0x57bc7354aa85aed339e000bccffabbc529466af35f0772c8f8ee1145927de7f0"

// tempoLife is how many seconds ahead the end of a transaction may be (TIP-1009).
const tempoLife = 30

// tempoChain is the chain with what the seller asked for there.
type tempoChain struct {
	*Chain
	challenges map[string]tempoChallenge // by id
	sent       map[[32]byte]bool         // transactions, by what was signed
}

type tempoChallenge struct {
	realm, path, request string
	amount               uint64
}

func newTempo(registry *x402.Registry, o Options, now func() time.Time) *tempoChain {
	token, _ := registry.Named(x402.TempoTestnet, "")
	return &tempoChain{Chain: newChain(token, now, o.Finality, &Extra{}),
		challenges: map[string]tempoChallenge{}, sent: map[[32]byte]bool{}}
}

// TempoNodeURL is where the node of Tempo's test net answers.
func (s *Sandbox) TempoNodeURL() string { return s.EVMNodeURL + "/tempo" }

// TempoBalance returns the balance of an address on Tempo, in atomic units.
func (s *Sandbox) TempoBalance(address string) uint64 {
	s.tempo.Lock()
	defer s.tempo.Unlock()
	return s.tempo.Balance(address)
}

func (s *Sandbox) tempoNode() http.Handler {
	c := s.tempo
	remembers := func(method func(p []json.RawMessage, forgets bool) (any, error)) Method {
		return func(p []json.RawMessage) (any, error) { return method(p, false) }
	}
	return rpcNode{chain: &c.Mutex, methods: map[string]Method{
		"eth_chainId":               func([]json.RawMessage) (any, error) { return quantity(c.ID()), nil },
		"eth_getBlockByNumber":      c.getBlock,
		"eth_call":                  remembers(c.call),
		"eth_getLogs":               remembers(c.getLogs),
		"eth_getTransactionReceipt": remembers(c.getReceipt),
	}}
}

// sellOnTempo answers a request to the seller.
func (s *Sandbox) sellOnTempo(sale *Sale) {
	sale.Refuse = func(string, uint64) { s.askOnTempo(sale) }
	sale.Receipt = func(encoded string) { sale.W.Header().Set("Payment-Receipt", encoded) }
	sale.Collect = func(credential []byte, _ json.RawMessage) {
		hash, err := s.settleOnTempo(credential, sale.Path)
		if err != nil {
			sale.Refuse(err.Error(), 1)
			return
		}
		receipt, _ := json.Marshal(map[string]string{"method": "tempo", "reference": hash,
			"status": "success", "timestamp": s.Now().UTC().Format(time.RFC3339)})
		sale.After(base64.RawURLEncoding.EncodeToString(receipt))
	}
	shown, isPaid := strings.CutPrefix(sale.R.Header.Get("Authorization"), "Payment ")
	switch {
	case sale.Price() == 0:
		sale.Deliver("")
	case !isPaid:
		sale.Refuse("Payment required", 1)
	default:
		credential, err := base64.RawURLEncoding.DecodeString(shown)
		sale.Take(credential, credential, err)
	}
}

func (s *Sandbox) askOnTempo(sale *Sale) {
	c := s.tempo
	at, _ := url.Parse(s.SellerURL)
	text, _ := json.Marshal(map[string]any{"amount": fmt.Sprint(sale.Price()), "currency": c.Asset.Address,
		"recipient": s.PayToEVM, "methodDetails": map[string]any{"chainId": c.ID(), "feePayer": true}})
	made := tempoChallenge{realm: at.Hostname(), path: sale.Path, amount: sale.Price(),
		request: base64.RawURLEncoding.EncodeToString(text)}
	id := rand.Text()
	c.Lock()
	c.challenges[id] = made
	c.Unlock()
	sale.W.Header().Set("WWW-Authenticate", fmt.Sprintf("Payment id=%q, realm=%q, method=\"tempo\", "+
		"intent=\"charge\", request=%q, expires=%q", id, made.realm, made.request,
		s.Now().Add(5*time.Minute).UTC().Format(time.RFC3339)))
	sale.Unpaid([]byte("{}"))
}

// settleOnTempo executes what a credential shows, and books it. Errors are a Reason.
func (s *Sandbox) settleOnTempo(credential []byte, path string) (hash string, err error) {
	var shown struct {
		Challenge struct{ ID, Realm, Request string }
		Payload   struct{ Type, Signature string }
	}
	if json.Unmarshal(credential, &shown) != nil || shown.Payload.Type != "transaction" {
		return "", Reason("malformed-credential")
	}
	signed, err := hex.DecodeString(strings.TrimPrefix(shown.Payload.Signature, "0x"))
	if err != nil {
		return "", Reason("malformed-credential")
	}
	s.tempo.Lock()
	asked, known := s.tempo.challenges[shown.Challenge.ID]
	s.tempo.Unlock()
	if !known || asked.path != path || asked.realm != shown.Challenge.Realm ||
		asked.request != shown.Challenge.Request {
		return "", Reason("invalid-challenge")
	}
	tx, err := decode.Rules{}.Transaction(signed)
	if err != nil {
		return "", Reason("verification-failed")
	}
	done, err := s.tempo.execute(tx, asked.amount, s.PayToEVM, tempoMemo(asked.realm, shown.Challenge.ID))
	if err == nil {
		done.Path = path
		s.book(done)
	}
	return done.Transaction, err
}

// tempoMemo is the memo that binds a transfer to a challenge (mppx 0.11), but for the part that names the
// buyer's program.
func tempoMemo(realm, id string) string {
	part := func(text string, size int) string { return hex.EncodeToString(Keccak(text)[:size]) }
	return "0x" + part("mpp", 4) + "01" + part(realm, 10) + strings.Repeat("00", 10) + part(id, 7)
}

// execute runs a transaction if it pays what is asked.
func (c *tempoChain) execute(tx decode.Payment, amount uint64, payee, memo string) (Settlement, error) {
	c.Lock()
	defer c.Unlock()
	now := uint64(c.Now().Unix())
	transfer := tx.Transfers[0]
	units, _ := transfer.Amount.Uint64()
	switch {
	case len(tx.Transfers) != 1 || tx.ChainID != c.ID() || !c.IsToken(tx.Token) || !tx.SellerPaysFee:
		return Settlement{}, Reason("verification-failed")
	case units != amount || !strings.EqualFold(transfer.To, payee) || transfer.Memo != memo:
		return Settlement{}, Reason("no-matching-transfer")
	case tx.ValidBefore <= now || tx.ValidBefore > now+tempoLife || tx.ValidAfter > now:
		return Settlement{}, Reason("not-valid-now")
	case c.sent[tx.SignHash]:
		return Settlement{}, Reason("already-used")
	case c.Balance(tx.Sender) < amount:
		return Settlement{}, Reason("insufficient-balance")
	}
	c.sent[tx.SignHash] = true
	made := &Transaction{Hash: HashOf("tempo", tx.SignHash), Block: c.Next(), From: tx.Sender,
		To: c.Asset.Address}
	c.Move(made, tx.Sender, payee, amount)
	made.Emit(c.Asset.Address, Word(amount), topicMemo, TopicOf(tx.Sender), TopicOf(payee), memo)
	c.Add(made)
	return Settlement{Network: c.Asset.Network, Transaction: made.Hash, Payer: tx.Sender, Signer: tx.Sender,
		PayTo: payee, Amount: amount, Nonce: memo}, nil
}
