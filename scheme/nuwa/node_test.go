package nuwa

import (
	"bytes"
	"crypto/sha3"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/nuwa"
	"x402-wallet/x402/money"
)

// chain is a Rooch node that verifies strictly: the authenticator, number and chain id of every
// transaction, and the signature, nonce and amount of every claim. Layouts are those of
// payment_channel.move and did_validator.move.
type chain struct {
	t        *testing.T
	url, id  string
	mu       sync.Mutex
	keys     map[account][]Key
	channels map[objectID]*chainChannel
	hubs     map[account]money.Amount
	numbers  map[account]uint64
	calls    map[string]int
	lose     bool // takes a transaction, and does not answer
	refuse   bool // the transaction aborts
	// what a transaction takes; 0: the node makes no dry runs
	fee uint64
}

type chainChannel struct {
	from, to account
	status   byte
	epoch    uint64
	subs     map[string]*subChannel
}

func newChain(t *testing.T) *chain {
	c := &chain{t: t, id: "4", keys: map[account][]Key{}, channels: map[objectID]*chainChannel{},
		hubs: map[account]money.Amount{}, numbers: map[account]uint64{}, calls: map[string]int{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *chain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		ID     json.RawMessage   `json:"id"`
		Method string            `json:"method"`
		Params []json.RawMessage `json:"params"`
	}
	if json.NewDecoder(r.Body).Decode(&q) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[q.Method]++
	result, err := c.answer(q.Method, q.Params)
	if err != nil {
		_ = json.NewEncoder(w).Encode(map[string]any{"id": q.ID, "error": map[string]any{"code": -32000,
			"message": err.Error()}})
		return
	}
	if q.Method == "rooch_executeRawTransaction" && c.lose {
		c.lose = false
		panic(http.ErrAbortHandler)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"id": q.ID, "result": result})
}

func (c *chain) answer(method string, params []json.RawMessage) (any, error) {
	text := func(i int) (s string) { _ = json.Unmarshal(params[i], &s); return s }
	switch method {
	case "rooch_getChainID":
		return c.id, nil
	case "rooch_getObjectStates":
		return []any{shown(c.object(text(0)))}, nil
	case "rooch_getFieldStates":
		var keys []string
		_ = json.Unmarshal(params[1], &keys)
		return []any{shown(c.field(text(0), keys[0]))}, nil
	case "rooch_executeViewFunction":
		var q struct {
			Args []string `json:"args"`
		}
		_ = json.Unmarshal(params[0], &q)
		var a account
		copy(a[:], unhex(c.t, q.Args[0]))
		return map[string]any{"vm_status": "Executed",
			"return_values": []any{map[string]any{"decoded_value": decimal(c.numbers[a])}}}, nil
	case "rooch_dryRunRawTransaction":
		if c.fee > 0 {
			return c.dryRun(unhex(c.t, text(0)))
		}
	case "rooch_executeRawTransaction":
		hash, err := c.execute(unhex(c.t, text(0)))
		status := "executed"
		if errors.Is(err, errMove) {
			status, err = "moveabort", nil
		}
		return map[string]any{"execution_info": map[string]any{"tx_hash": "0x" + hex.EncodeToString(hash),
			"status": map[string]any{"type": status, "location": "payment_channel", "abort_code": "20"}}}, err
	}
	return nil, errors.New("no such method")
}

func shown(value []byte) any {
	if value == nil {
		return nil
	}
	return map[string]string{"value": "0x" + hex.EncodeToString(value)}
}

// child names the tables below an object; any id of their own will do.
func child(id [32]byte, name string) objectID { return sha3.Sum256(append(id[:], name...)) }

// Ids and layouts are written down here once more, from the Move sources.

const coin = "0x0000000000000000000000000000000000000000000000000000000000000003::gas_coin::RGas"

func moveID(key []byte, name string) objectID {
	const framework = "0x0000000000000000000000000000000000000000000000000000000000000003::"
	return sha3.Sum256(append(key, framework+name...))
}

func identifier(a account) string { return strings.TrimPrefix(a.did(), didPrefix) }

// entry reports whether a key is that of a string, in a table whose keys are strings.
func entry(key, name string) bool {
	const kind = "0x0000000000000000000000000000000000000000000000000000000000000001::string::String"
	return objectID(sha3.Sum256(append(encodeBCS(name), kind...))).String() == key
}

func (c *chain) object(name string) []byte {
	id := must.Get(parseObjectID(name))(c.t)
	for a, keys := range c.keys {
		if moveID(encodeBCS(identifier(a)), "did::DIDDocument") == id {
			return document(a, keys)
		}
		if moveID(a[:], "payment_channel::PaymentHub") == id && !c.hubs[a].IsZero() {
			return encodeBCS([2][]objectID{{child(a, "coins")}, {child(a, "active")}})
		}
	}
	if ch := c.channels[id]; ch != nil {
		return encodeBCS(struct {
			From, To  account
			Coin      string
			Subs      []objectID
			Status    byte
			Epoch     uint64
			Cancelled byte
		}{ch.from, ch.to, coin, []objectID{child(id, "subs")}, ch.status, ch.epoch, 0})
	}
	return nil
}

func document(a account, keys []Key) []byte {
	type did struct{ Method, Identifier string }
	type method struct {
		Name           string
		ID             did
		Fragment, Type string
		Owner          did
		Key            string
	}
	me := did{"rooch", identifier(a)}
	var methods []method
	var names []string
	for _, k := range keys {
		methods = append(methods, method{k.Fragment, me, k.Fragment, k.Type, me, k.Multibase})
		names = append(names, k.Fragment)
	}
	return encodeBCS(struct {
		ID             did
		Controllers    []did
		Methods        []method
		Authentication []string
		More           [64]byte
	}{ID: me, Controllers: []did{me}, Methods: methods, Authentication: names})
}

func (c *chain) field(table, key string) []byte {
	for id, ch := range c.channels {
		for name, s := range ch.subs {
			if child(id, "subs").String() == table && entry(key, name) {
				return encodeBCS(struct {
					Name, Key, Type string
					Amount          money.Amount
					Nonce           uint64
				}{name, s.Key.Multibase, s.Key.Type, s.Amount, s.Nonce})
			}
		}
	}
	for a, amount := range c.hubs {
		if child(a, "coins").String() == table && entry(key, coin) {
			return encodeBCS(struct {
				Name, Coin string
				Amount     money.Amount
				Frozen     byte
			}{coin, coin, amount, 0})
		}
	}
	return nil
}

// errMove says that the chain took the transaction and undid it.
var errMove = errors.New("move abort")

type moveCall struct {
	From               account
	Number, Chain, Gas uint64
	Action             byte
	Package            account
	Module, Function   string
	Coins              []struct {
		Tag          byte
		Package      account
		Module, Name string
		Params       []byte
	}
	Args [][]byte
}

func (tx *moveCall) check() error {
	three := account{31: 3}
	if tx.Action != 1 || tx.Package != three || tx.Module != "payment_channel" {
		return errors.New("not a call of payment_channel")
	}
	for _, coin := range tx.Coins {
		isRGas := coin.Package == three && coin.Module == "gas_coin" && coin.Name == "RGas"
		if coin.Tag != 7 || !isRGas || len(coin.Params) != 0 {
			return errors.New("another coin")
		}
	}
	return nil
}

func (c *chain) execute(raw []byte) (hash []byte, err error) {
	var tx moveCall
	var authenticator struct {
		Validator uint64
		Payload   []byte
	}
	var payload struct {
		Envelope  byte
		Fragment  string
		Signature []byte
		Message   byte
	}
	rest, err := decodeBCS(raw, &tx)
	sum := sha3.Sum256(raw[:len(raw)-len(rest)])
	if err == nil {
		rest, err = decodeBCS(rest, &authenticator)
	}
	if err != nil || len(rest) != 0 || authenticator.Validator != 4 {
		return nil, errors.New("not a transaction of the DID validator")
	}
	rest, err = decodeBCS(authenticator.Payload, &payload)
	if err != nil || len(rest) != 0 || payload.Envelope != 0 || payload.Message != 0 {
		return nil, errors.New("not an authenticator of the DID validator")
	}
	if err := tx.check(); err != nil {
		return nil, err
	}
	from := tx.From
	i := slices.IndexFunc(c.keys[from], func(k Key) bool { return k.Fragment == payload.Fragment })
	switch {
	case i < 0 || !nuwa.VerifyChannelKey(c.keys[from][i].Type, c.keys[from][i].Multibase, sum[:],
		payload.Signature):
		return nil, errors.New("bad authenticator")
	case decimal(tx.Chain) != c.id:
		return nil, errors.New("another chain")
	case tx.Number != c.numbers[from]:
		return nil, errors.New("another sequence number")
	}
	c.numbers[from]++
	if c.refuse || tx.Gas < c.fee {
		return sum[:], errMove
	}
	return sum[:], c.move(from, tx.Function, tx.Args)
}

func (c *chain) dryRun(data []byte) (any, error) {
	var tx moveCall
	rest, err := decodeBCS(data, &tx)
	if err != nil || len(rest) != 0 || tx.check() != nil || tx.Number != c.numbers[tx.From] {
		return nil, errors.New("not a transaction's data")
	}
	status := "executed"
	if c.refuse {
		status = "moveabort"
	}
	return map[string]any{"vm_error_info": map[string]any{}, "raw_output": map[string]any{"tx_hash": "0x",
		"gas_used": decimal(c.fee), "status": map[string]any{"type": status, "location": "payment_channel",
			"abort_code": "20"}}}, nil
}

func (c *chain) move(from account, function string, args [][]byte) error {
	decode := func(i int, v any) {
		require.Empty(c.t, must.Get(decodeBCS(args[i], v))(c.t))
	}
	var fragment string
	switch function {
	case "open_channel_with_sub_channel_entry":
		decode(1, &fragment)
		to := account(args[0])
		id := idOfChannel(from, to)
		if c.channels[id] == nil {
			c.channels[id] = &chainChannel{from: from, to: to, subs: map[string]*subChannel{}}
		}
		return c.authorize(id, fragment)
	case "authorize_sub_channel_entry":
		var path []objectID
		decode(0, &path)
		require.Len(c.t, path, 1)
		decode(1, &fragment)
		return c.authorize(path[0], fragment)
	case "deposit_to_hub_entry":
		if !bytes.Equal(args[0], from[:]) {
			return errMove
		}
		var amount money.Amount
		decode(1, &amount)
		c.hubs[from], _ = c.hubs[from].Add(amount)
		return nil
	}
	return errMove
}

func (c *chain) authorize(id objectID, fragment string) error {
	ch := c.channels[id]
	i := slices.IndexFunc(c.keys[ch.from], func(k Key) bool { return k.Fragment == fragment })
	if i < 0 {
		return errMove
	}
	if ch.subs[fragment] == nil {
		ch.subs[fragment] = &subChannel{Key: c.keys[ch.from][i]}
	}
	return nil
}

// claim is what a payee does with a SubRAV: claim_from_channel_entry.
func (c *chain) claim(s signedSubRAV) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.channels[s.SubRAV.Channel]
	sub := ch.subs[s.SubRAV.Fragment]
	signature, err := unMultibase(s.Signature)
	switch {
	case err != nil || !nuwa.VerifyChannelKey(sub.Key.Type, sub.Key.Multibase,
		SubRAV(s.SubRAV).bytes(), signature):
		return errors.New("bad SubRAV signature")
	case decimal(s.SubRAV.ChainID) != c.id || s.SubRAV.Epoch != ch.epoch:
		return errors.New("another chain or epoch")
	case s.SubRAV.Nonce <= sub.Nonce || s.SubRAV.Amount.Cmp(sub.Amount) < 0:
		return errors.New("claim does not increase")
	}
	due := s.SubRAV.Amount.SubFloor(sub.Amount)
	if due.Cmp(c.hubs[ch.from]) > 0 {
		return errors.New("hub balance too low")
	}
	c.hubs[ch.from] = c.hubs[ch.from].SubFloor(due)
	sub.Nonce, sub.Amount = s.SubRAV.Nonce, s.SubRAV.Amount
	return nil
}

func (c *chain) node() *node {
	return NewNodes(map[string]string{"rooch:local": c.url}, http.DefaultClient, nil)["rooch:local"]
}

func TestNodeReads(t *testing.T) {
	c := newChain(t)
	node := c.node()
	v := readVectors(t)
	payer, payee := parse(t, v.Parties["payer"].DID), parse(t, v.Parties["service"].DID)
	c.keys[payer] = []Key{{Fragment: "key-1", Type: ed25519Key, Multibase: v.Parties["payer"].Key}}
	keys := must.Get(node.keys(t.Context(), payer))(t)
	require.Equal(t, c.keys[payer], keys)
	keys = must.Get(node.keys(t.Context(), payee))(t)
	require.Empty(t, keys, "no document")
	object := must.Get(node.channel(t.Context(), idOfChannel(payer, payee)))(t)
	require.Nil(t, object)
	hub := must.Get(node.hub(t.Context(), payer))(t)
	require.True(t, hub.IsZero())

	raw := strings.TrimPrefix(v.OpenTx.Raw, "0x")
	must.Get(node.execute(t.Context(), "0x"+raw))(t) // the kit's own transaction
	object = must.Get(node.channel(t.Context(), idOfChannel(payer, payee)))(t)
	require.Equal(t, payer, object.Sender)
	s := must.Get(node.subChannel(t.Context(), object, "key-1"))(t)
	require.Equal(t, v.Parties["payer"].Key, s.Key.Multibase)
	require.EqualValues(t, 1, must.Get(node.sequence(t.Context(), payer))(t))
	require.Error(t, must.Err(node.execute(t.Context(), "0x"+raw)), "its number is used up")

	c.hubs[payer] = money.NewAmount(5)
	hub = must.Get(node.hub(t.Context(), payer))(t)
	require.Equal(t, money.NewAmount(5), hub)

	c.id = "1"
	require.ErrorContains(t, must.Err(c.node().keys(t.Context(), payer)), "chain id")
}
