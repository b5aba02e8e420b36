package channel

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

	"x402-wallet/wallet"
	"x402-wallet/x402/money"
)

// chain is a Rooch node that verifies strictly: the authenticator, number and chain id of every
// transaction, and the signature, nonce and amount of every claim. Layouts are those of
// payment_channel.move and did_validator.move.
type chain struct {
	t        *testing.T
	url      string
	id       string
	mu       sync.Mutex
	keys     map[Account][]Key
	channels map[ObjectID]*chainChannel
	hubs     map[Account]money.Amount
	numbers  map[Account]uint64
	calls    map[string]int
	lose     bool // takes a transaction, and does not answer
	refuse   bool // the transaction aborts
}

type chainChannel struct {
	from, to Account
	status   byte
	epoch    uint64
	subs     map[string]*sub
}

func newChain(t *testing.T) *chain {
	c := &chain{t: t, id: "4", keys: map[Account][]Key{}, channels: map[ObjectID]*chainChannel{},
		hubs: map[Account]money.Amount{}, numbers: map[Account]uint64{}, calls: map[string]int{}}
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
		var a Account
		copy(a[:], unhex(c.t, q.Args[0]))
		return map[string]any{"vm_status": "Executed",
			"return_values": []any{map[string]any{"decoded_value": decimal(c.numbers[a])}}}, nil
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
func child(id [32]byte, name string) ObjectID { return sha3.Sum256(append(id[:], name...)) }

func (c *chain) object(name string) []byte {
	id, err := ParseObjectID(name)
	require.NoError(c.t, err)
	var e encoder
	for a, keys := range c.keys {
		if documentOf(a) == id {
			did := func(a Account) { e.text("rooch"); e.text(a.identifier()) }
			did(a)
			e.length(1)
			did(a)
			e.length(len(keys))
			for _, k := range keys {
				e.text(k.Fragment)
				did(a)
				e.text(k.Fragment)
				e.text(k.Type)
				did(a)
				e.text(k.Multibase)
			}
			e.length(len(keys))
			for _, k := range keys {
				e.text(k.Fragment)
			}
			e.raw(make([]byte, 64)) // and more
			return e.b
		}
		if hubOf(a) == id && !c.hubs[a].IsZero() {
			e.bytes1(child(a, "coins"))
			e.bytes1(child(a, "active"))
			return e.b
		}
	}
	if ch := c.channels[id]; ch != nil {
		e.raw(ch.from[:])
		e.raw(ch.to[:])
		e.text(canonicalRGas)
		e.bytes1(child(id, "subs"))
		e.u8(ch.status)
		e.u64(ch.epoch)
		e.u8(0)
		return e.b
	}
	return nil
}

func (c *chain) field(table, key string) []byte {
	var e encoder
	for id, ch := range c.channels {
		for name, s := range ch.subs {
			if child(id, "subs").String() == table && fieldKey(name).String() == key {
				e.text(name)
				e.text(s.Key.Multibase)
				e.text(s.Key.Type)
				e.u256(s.Last.Amount)
				e.u64(s.Last.Nonce)
				return e.b
			}
		}
	}
	for a, amount := range c.hubs {
		if child(a, "coins").String() == table && fieldKey(canonicalRGas).String() == key {
			e.text(canonicalRGas)
			e.text(canonicalRGas)
			e.u256(amount)
			e.u8(0)
			return e.b
		}
	}
	return nil
}

// errMove says that the chain took the transaction and undid it.
var errMove = errors.New("move abort")

func (c *chain) execute(raw []byte) (hash []byte, err error) {
	d := decoder{rest: raw}
	from, number, id := Account(d.hash()), d.u64(), d.u64()
	_, action := d.u64(), d.u8()
	module := d.hash()
	name, function := d.text(), d.text()
	for range d.length() {
		tag, address, where, what, params := d.u8(), d.hash(), d.text(), d.text(), d.length()
		if tag != 7 || address != module || where != "gas_coin" || what != "RGas" || params != 0 {
			return nil, errors.New("another coin")
		}
	}
	var args [][]byte
	for range d.length() {
		args = append(args, d.take(d.length()))
	}
	data := raw[:len(raw)-len(d.rest)]
	sum := sha3.Sum256(data)
	validator := d.u64()
	payload := decoder{rest: d.take(d.length())}
	envelope, fragment := payload.u8(), payload.text()
	signature := payload.take(payload.length())
	message := payload.u8()
	if d.end() != nil || payload.end() != nil || validator != 4 || envelope != 0 || message != 0 ||
		action != 1 || name != "payment_channel" || module != [32]byte{31: 3} {
		return nil, errors.New("not a transaction of the DID validator")
	}
	i := slices.IndexFunc(c.keys[from], func(k Key) bool { return k.Fragment == fragment })
	switch {
	case i < 0 || !wallet.VerifyChannelKey(c.keys[from][i].Type, c.keys[from][i].Multibase, sum[:],
		signature):
		return nil, errors.New("bad authenticator")
	case decimal(id) != c.id:
		return nil, errors.New("another chain")
	case number != c.numbers[from]:
		return nil, errors.New("another sequence number")
	}
	c.numbers[from]++
	if c.refuse {
		return sum[:], errMove
	}
	return sum[:], c.move(from, function, args)
}

func (c *chain) move(from Account, function string, args [][]byte) error {
	second := decoder{rest: args[1]}
	switch function {
	case fnOpen:
		to := Account(args[0])
		id := ChannelID(from, to)
		if c.channels[id] == nil {
			c.channels[id] = &chainChannel{from: from, to: to, subs: map[string]*sub{}}
		}
		return c.authorize(id, second.text())
	case fnAuthorize:
		first := decoder{rest: args[0]}
		return c.authorize(first.id(), second.text())
	case fnDeposit:
		if !bytes.Equal(args[0], from[:]) {
			return errMove
		}
		c.hubs[from], _ = c.hubs[from].Add(second.u256())
		return nil
	}
	return errMove
}

func (c *chain) authorize(id ObjectID, fragment string) error {
	ch := c.channels[id]
	i := slices.IndexFunc(c.keys[ch.from], func(k Key) bool { return k.Fragment == fragment })
	if i < 0 {
		return errMove
	}
	if ch.subs[fragment] == nil {
		ch.subs[fragment] = &sub{Key: c.keys[ch.from][i]}
	}
	return nil
}

// claim is what a payee does with a promise: claim_from_channel_entry.
func (c *chain) claim(s Signed) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.channels[s.SubRAV.Channel]
	sub := ch.subs[s.SubRAV.Fragment]
	signature, err := unMultibase(s.Signature)
	switch {
	case err != nil || !wallet.VerifyChannelKey(sub.Key.Type, sub.Key.Multibase, s.SubRAV.Bytes(), signature):
		return errors.New("bad SubRAV signature")
	case decimal(s.SubRAV.ChainID) != c.id || s.SubRAV.Epoch != ch.epoch:
		return errors.New("another chain or epoch")
	case s.SubRAV.Nonce <= sub.Last.Nonce || s.SubRAV.Amount.Cmp(sub.Last.Amount) < 0:
		return errors.New("claim does not increase")
	}
	due := s.SubRAV.Amount.SubFloor(sub.Last.Amount)
	if due.Cmp(c.hubs[ch.from]) > 0 {
		return errors.New("hub balance too low")
	}
	c.hubs[ch.from] = c.hubs[ch.from].SubFloor(due)
	sub.Last = baseline{s.SubRAV.Nonce, s.SubRAV.Amount}
	return nil
}

func TestTheNodeIsRead(t *testing.T) {
	c := newChain(t)
	node := NewRooch("rooch:local", c.url, http.DefaultClient)
	v := readVectors(t)
	payer, payee := parse(t, v.Parties["payer"].DID), parse(t, v.Parties["service"].DID)
	c.keys[payer] = []Key{{"key-1", ed25519Key, v.Parties["payer"].Key}}
	keys, err := node.Keys(t.Context(), payer)
	require.NoError(t, err)
	require.Equal(t, c.keys[payer], keys)
	keys, err = node.Keys(t.Context(), payee)
	require.NoError(t, err)
	require.Empty(t, keys, "no document")
	object, err := node.channel(t.Context(), ChannelID(payer, payee))
	require.NoError(t, err)
	require.Nil(t, object)
	hub, err := node.hub(t.Context(), payer)
	require.NoError(t, err)
	require.True(t, hub.IsZero())

	raw := strings.TrimPrefix(v.OpenTx.Raw, "0x")
	_, err = node.execute(t.Context(), "0x"+raw) // the kit's own transaction
	require.NoError(t, err)
	object, err = node.channel(t.Context(), ChannelID(payer, payee))
	require.NoError(t, err)
	require.Equal(t, payer, object.Sender)
	s, err := node.sub(t.Context(), object, "key-1")
	require.NoError(t, err)
	require.Equal(t, v.Parties["payer"].Key, s.Key.Multibase)
	number, err := node.sequence(t.Context(), payer)
	require.NoError(t, err)
	require.EqualValues(t, 1, number)
	_, err = node.execute(t.Context(), "0x"+raw)
	require.Error(t, err, "its number is used up")

	c.hubs[payer] = money.NewAmount(5)
	hub, err = node.hub(t.Context(), payer)
	require.NoError(t, err)
	require.Equal(t, money.NewAmount(5), hub)

	c.id = "1"
	_, err = NewRooch("rooch:local", c.url, http.DefaultClient).Keys(t.Context(), payer)
	require.ErrorContains(t, err, "chain id")
}
