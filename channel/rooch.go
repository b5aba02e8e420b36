package channel

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"x402-wallet/chain/rpc"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// chainIDs are Rooch's networks (rooch-sdk 0.4.0, payment-kit's changelog).
var chainIDs = map[string]uint64{"rooch:main": 1, "rooch:test": 2, "rooch:dev": 3, "rooch:local": 4}

// IsNetwork reports whether a network is one of Rooch's.
func IsNetwork(name string) bool { return chainIDs[name] != 0 }

// Rooch is the owner's node for one network. It is safe for concurrent use.
type Rooch struct {
	*rpc.Node

	mu   sync.Mutex
	same bool // it answered with the network's chain id once
}

// NewRooch makes the client of a node; network is a CAIP-2 like name, "rooch:main".
func NewRooch(network, url string, client *http.Client) *Rooch {
	return &Rooch{Node: rpc.New(network, url, client, nil)}
}

// Key is a key of a DID document.
type Key struct {
	Fragment  string `json:"fragment"`
	Type      string `json:"type"`
	Multibase string `json:"publicKeyMultibase"` // z and base58, without multicodec
}

// object is a channel as the chain has it.
type object struct {
	Sender, Receiver Account
	Coin             string
	subs             ObjectID // the table of its sub-channels
	Status           byte
	Epoch            uint64
}

// Status of a channel.
const (
	active  = 0
	closing = 1
)

func (o object) status() string {
	switch o.Status {
	case active:
		return "active"
	case closing:
		return "closing"
	default:
		return "closed"
	}
}

// sub is a sub-channel: one key's part of it.
type sub struct {
	Key  Key
	Last baseline // claimed and confirmed
}

// Keys are the keys that a DID document lets authenticate. A DID without a document has none.
func (r *Rooch) Keys(ctx context.Context, a Account) (list []Key, err error) {
	value, err := r.object(ctx, documentOf(a))
	if err != nil || value == nil {
		return nil, err
	}
	d := decoder{rest: value}
	did := func() { _, _ = d.text(), d.text() } // method, identifier
	did()
	for range d.length() { // controllers
		did()
	}
	for range d.length() { // verification methods, behind their fragments
		k := Key{Fragment: d.text()}
		did()
		_, k.Type = d.text(), d.text()
		did()
		k.Multibase = d.text()
		list = append(list, k)
	}
	may := map[string]bool{}
	for _, fragment := range d.texts() {
		may[fragment] = true
	}
	if d.bad {
		return nil, r.Failed("with a DID document", errBCS)
	}
	var usable []Key
	for _, k := range list {
		if may[k.Fragment] {
			usable = append(usable, k)
		}
	}
	return usable, nil
}

// channel reads a channel; nil: it was never opened.
func (r *Rooch) channel(ctx context.Context, id ObjectID) (*object, error) {
	value, err := r.object(ctx, id)
	if err != nil || value == nil {
		return nil, err
	}
	d := decoder{rest: value}
	o := &object{Sender: d.hash(), Receiver: d.hash(), Coin: d.text(), subs: d.id(), Status: d.u8(),
		Epoch: d.u64()}
	if d.u8() == 1 { // it is being cancelled: since when, and how much is open
		_, _ = d.u64(), d.u256()
	}
	if err := d.end(); err != nil {
		return nil, r.Failed("with a channel", err)
	}
	return o, nil
}

// id is an object's id, which the SDK writes as a path of one.
func (d *decoder) id() ObjectID {
	if d.length() != 1 {
		d.bad = true
	}
	return d.hash()
}

// sub reads what a key has in a channel; nil: it may not sign for it.
func (r *Rooch) sub(ctx context.Context, o *object, fragment string) (*sub, error) {
	value, err := r.field(ctx, o.subs, fragment)
	if err != nil || value == nil {
		return nil, err
	}
	d := decoder{rest: value}
	s := &sub{Key: Key{Fragment: d.text(), Multibase: d.text(), Type: d.text()},
		Last: baseline{Amount: d.u256(), Nonce: d.u64()}}
	if err := d.end(); err != nil || s.Key.Fragment != fragment {
		return nil, r.Failed("with a sub-channel", errBCS)
	}
	return s, nil
}

// hub is what lies in an account's hub.
func (r *Rooch) hub(ctx context.Context, owner Account) (balance money.Amount, err error) {
	value, err := r.object(ctx, hubOf(owner))
	if err != nil || value == nil {
		return balance, err
	}
	d := decoder{rest: value}
	store := d.id()
	if d.bad {
		return balance, r.Failed("with a payment hub", errBCS)
	}
	if value, err = r.field(ctx, store, canonicalRGas); err != nil || value == nil {
		return balance, err
	}
	d = decoder{rest: value}
	name, coin := d.text(), d.text()
	balance = d.u256()
	frozen := d.u8()
	if err := d.end(); err != nil || name != canonicalRGas || coin != canonicalRGas {
		return balance, r.Failed("with a payment hub", errBCS)
	}
	if frozen != 0 {
		return money.Amount{}, nil
	}
	return balance, nil
}

// sequence is the number of an account's next transaction.
func (r *Rooch) sequence(ctx context.Context, a Account) (uint64, error) {
	var out struct {
		Status string `json:"vm_status"`
		Values []struct {
			Decoded json.Number `json:"decoded_value"`
		} `json:"return_values"`
	}
	err := r.Call(ctx, &out, "rooch_executeViewFunction", map[string]any{
		"function_id": moveos + "::account::sequence_number", "args": []string{a.String()},
		"ty_args": []string{},
	})
	if err == nil && len(out.Values) != 1 {
		err = r.Failed("with an account", errBCS)
	}
	if err != nil {
		return 0, err
	}
	n, err := parseDecimal(out.Values[0].Decoded.String())
	if err != nil {
		return 0, r.Failed("with an account", err)
	}
	return n, nil
}

// errAborted says that the chain took a transaction and it did nothing.
var errAborted = errors.New("the chain refused the transaction")

// execute sends a transaction. errAborted: it is over, and nothing happened but its gas. Another
// error: nobody knows.
func (r *Rooch) execute(ctx context.Context, raw string) (hash string, err error) {
	var out struct {
		Execution struct {
			Hash   string `json:"tx_hash"`
			Status struct {
				Type     string `json:"type"`
				Location string `json:"location"`
				Abort    string `json:"abort_code"`
			} `json:"status"`
		} `json:"execution_info"`
	}
	if err := r.Call(ctx, &out, "rooch_executeRawTransaction", raw,
		map[string]bool{"withOutput": true}); err != nil {
		return "", err
	}
	if s := out.Execution.Status; s.Type != "executed" {
		return out.Execution.Hash, fmt.Errorf("%w: %s at %s, code %s", errAborted, x402.Quote(s.Type),
			x402.Quote(s.Location), x402.Quote(s.Abort))
	}
	return out.Execution.Hash, nil
}

// state is an object or a field as the node shows it.
type state struct {
	Value string `json:"value"`
}

func (r *Rooch) object(ctx context.Context, id ObjectID) ([]byte, error) {
	return r.state(ctx, "rooch_getObjectStates", id.String(), map[string]bool{"decode": false,
		"showDisplay": false})
}

func (r *Rooch) field(ctx context.Context, table ObjectID, name string) ([]byte, error) {
	return r.state(ctx, "rooch_getFieldStates", table.String(), []string{fieldKey(name).String()},
		map[string]bool{"decode": false, "showDisplay": false})
}

func (r *Rooch) state(ctx context.Context, method string, params ...any) ([]byte, error) {
	if err := r.sameChain(ctx); err != nil {
		return nil, err
	}
	var list []*state
	if err := r.Call(ctx, &list, method, params...); err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, r.Failed(method, errBCS)
	}
	if list[0] == nil {
		return nil, nil
	}
	value, err := hex.DecodeString(strings.TrimPrefix(list[0].Value, "0x"))
	if err != nil {
		return nil, r.Failed(method, errBCS)
	}
	return value, nil
}

// sameChain refuses a node of another network: who chooses the node chooses the evidence.
func (r *Rooch) sameChain(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.same {
		return nil
	}
	var id json.Number
	if err := r.Call(ctx, &id, "rooch_getChainID"); err != nil {
		return err
	}
	if id.String() != decimal(chainIDs[r.Network]) {
		return x402.Errorf(x402.RPCError, "the node of %s has the chain id %s, not %d", r.Network,
			x402.Quote(id.String()), chainIDs[r.Network]).
			WithHint("the owner mends rpc under [networks.%q] in config.toml", r.Network)
	}
	r.same = true
	return nil
}
