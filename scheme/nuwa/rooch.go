package nuwa

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"x402-wallet/chain/rpc"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/observe"
)

// Rooch is the chain of the Nuwa payment channels. What a node says is read strictly or not at all,
// and only from a node of the network that it was configured for.

// chainIDs are Rooch's networks (rooch-sdk 0.4.0, payment-kit's changelog).
var chainIDs = map[string]uint64{"rooch:main": 1, "rooch:test": 2, "rooch:dev": 3, "rooch:local": 4}

// node is the owner's node for one network. It is safe for concurrent use.
type node struct {
	*rpc.Node

	verified atomic.Bool // it answered with the network's chain id once
}

// chainID is the network's number, which stands in everything that is signed for it.
func (n *node) chainID() uint64 { return chainIDs[n.Network] }

// assetRGas is RGas on a network. Its price is the one that the kit has built in: 100 picodollars a
// unit.
func assetRGas(network string) x402.AssetInfo {
	const price = money.Dollars(10_000) // of one RGas
	return x402.AssetInfo{Network: network, Address: coinRGas, Symbol: "RGas", Decimals: 8, USD: price}
}

// dollars is an amount of RGas as people read it.
func dollars(units money.Amount) string { return assetRGas("").Dollars(units).Price() }

// Nodes are the owner's, by network: a CAIP-2 like name, "rooch:main". They are safe for concurrent
// use.
type Nodes map[string]*node

// NewNodes makes the clients of those of the networks that are Rooch's. observe hears of every question; nil:
// nobody does.
func NewNodes(urls map[string]string, client *http.Client, observe observe.NodeObserver) Nodes {
	nodes := Nodes{}
	for network, url := range urls {
		if x402.Namespace(network) == "rooch" {
			nodes[network] = &node{Node: rpc.New(rpc.Options{Network: network, URL: url, HTTP: client,
				Observe: observe})}
		}
	}
	return nodes
}

// Assets are what channels on these networks are paid in, for the registry.
func (nodes Nodes) Assets() (list []x402.AssetInfo) {
	for _, network := range slices.Sorted(maps.Keys(nodes)) {
		list = append(list, assetRGas(network))
	}
	return list
}

// Statuses finds what says what became of what was paid through channels, by its scheme in the
// ledger.
func (nodes Nodes) Statuses() map[pay.SchemeKey]pay.StatusReader {
	list := map[pay.SchemeKey]pay.StatusReader{}
	for _, scheme := range []string{schemeCall, schemeOpen, schemeDeposit} {
		list[pay.SchemeKey{Scheme: scheme, Family: "rooch"}] = statuses(nodes)
	}
	return list
}

// statuses are Nodes as a pay.StatusReader.
type statuses Nodes

// Status asks the chain what became of what a channel owes, or of a transaction that opens one. A
// SubRAV happened when the payee has claimed its nonce or a later one; until then, and for ever, it
// may: it never expires. A transaction happened when its account's number has passed it. With an
// error the state is Open.
func (nodes statuses) Status(ctx context.Context, e x402.Evidence) (x402.Status, error) {
	node := nodes[e.Network]
	nonce, err := parseDecimal(e.Nonce)
	if node == nil || err != nil {
		return x402.Status{}, x402.Errorf(x402.RPCError, "no node of %s is configured", x402.Quote(e.Network))
	}
	if e.Destination != "" { // only a transaction has one
		payer, err := parseDID(e.Payer)
		if err != nil {
			return x402.Status{}, err
		}
		next, err := node.sequence(ctx, payer)
		if err != nil || next <= nonce {
			return x402.Status{}, err
		}
		note := fmt.Sprintf("the account has made its transaction %d", nonce)
		return x402.Status{State: x402.Settled, Note: note}, nil
	}
	_, fragment, _ := strings.Cut(e.Payer, "#")
	id, err := parseObjectID(e.Source)
	if err != nil {
		return x402.Status{}, err
	}
	channel, err := node.channel(ctx, id)
	if err != nil || channel == nil {
		return x402.Status{}, err
	}
	sub, err := node.subChannel(ctx, channel, fragment)
	if err != nil || sub == nil || sub.Nonce < nonce {
		return x402.Status{}, err
	}
	note := fmt.Sprintf("the payee has claimed %s up to nonce %d", dollars(sub.Amount), sub.Nonce)
	return x402.Status{State: x402.Settled, Note: note}, nil
}

// Key is a key of a DID document, in the order of payment_channel.move.
type Key struct {
	Fragment  string
	Multibase string // z and base58, without multicodec
	Type      string
}

// keys are the keys that a DID document lets authenticate. A DID without a document has none.
func (n *node) keys(ctx context.Context, a account) (usable []Key, err error) {
	value, err := n.object(ctx, documentOf(a))
	if err != nil || value == nil {
		return nil, err
	}
	type did struct{ Method, Identifier string }
	var document struct {
		ID          did
		Controllers []did
		Methods     []struct { // of verification, behind their fragments
			Fragment         string
			ID               did
			IDFragment, Type string
			Controller       did
			Multibase        string
		}
		Authentication []string
	}
	if _, err := decodeBCS(value, &document); err != nil {
		return nil, n.Failed("with a DID document", err)
	}
	for _, m := range document.Methods {
		if slices.Contains(document.Authentication, m.Fragment) {
			usable = append(usable, Key{Fragment: m.Fragment, Type: m.Type, Multibase: m.Multibase})
		}
	}
	return usable, nil
}

type channelState struct {
	Sender, Receiver account
	Coin             string
	Subs             objectPath // the table of its sub-channels
	Status           byte
	Epoch            uint64     // one more each time that the channel is opened again
	Cancellation     []struct { // an option: since when, and how much is open
		Since   uint64
		Pending money.Amount
	}
}

// stateActive is the state of a channel that can be paid from.
const stateActive = "active"

func (c *channelState) state() string {
	states := []string{stateActive, "closing", "closed"}
	return states[min(int(c.Status), len(states)-1)]
}

// channel reads a channel; nil: it was never opened.
func (n *node) channel(ctx context.Context, id objectID) (*channelState, error) {
	value, err := n.object(ctx, id)
	if err != nil || value == nil {
		return nil, err
	}
	var c channelState
	if err := decodeAllBCS(value, &c); err != nil || len(c.Subs) != 1 {
		return nil, n.Failed("with a channel", errLayout)
	}
	return &c, nil
}

// subChannel is one key's part of a channel: what the payee has claimed of it, and the chain
// confirmed.
type subChannel struct {
	Key    Key
	Amount money.Amount
	Nonce  uint64
}

// subChannel reads what a key has in a channel; nil: it may not sign for it.
func (n *node) subChannel(ctx context.Context, c *channelState, fragment string) (*subChannel, error) {
	value, err := n.field(ctx, c.Subs[0], fragment)
	if err != nil || value == nil {
		return nil, err
	}
	var sub subChannel
	if err := decodeAllBCS(value, &sub); err != nil || sub.Key.Fragment != fragment {
		return nil, n.Failed("with a sub-channel", errLayout)
	}
	return &sub, nil
}

// hub is what lies in an account's payment hub, in units of RGas; none where it is frozen.
func (n *node) hub(ctx context.Context, owner account) (balance money.Amount, err error) {
	value, err := n.object(ctx, hubOf(owner))
	if err != nil || value == nil {
		return balance, err
	}
	var store objectPath
	if _, err := decodeBCS(value, &store); err != nil || len(store) != 1 {
		return balance, n.Failed("with a payment hub", errLayout)
	}
	value, err = n.field(ctx, store[0], canonicalRGas)
	if err != nil || value == nil {
		return balance, err
	}
	var coins struct {
		Name, Coin string
		Balance    money.Amount
		Frozen     byte
	}
	err = decodeAllBCS(value, &coins)
	if err != nil || coins.Name != canonicalRGas || coins.Coin != canonicalRGas {
		return balance, n.Failed("with a payment hub", errLayout)
	}
	if coins.Frozen == 0 {
		balance = coins.Balance
	}
	return balance, nil
}

// sequence is the number of an account's next transaction.
func (n *node) sequence(ctx context.Context, a account) (uint64, error) {
	var out struct {
		Values []struct {
			Decoded json.Number `json:"decoded_value"`
		} `json:"return_values"`
	}
	err := n.ask(ctx, &out, "rooch_executeViewFunction", map[string]any{
		"function_id": moveos + "::account::sequence_number", "args": []string{a.String()},
		"ty_args": []string{},
	})
	if err != nil {
		return 0, err
	}
	if len(out.Values) != 1 {
		return 0, n.Failed("with an account", errLayout)
	}
	number, err := parseDecimal(out.Values[0].Decoded.String())
	if err != nil {
		return 0, n.Failed("with an account", err)
	}
	return number, nil
}

// errAborted says that the chain took a transaction and undid it: nothing happened but its fee.
var errAborted = errors.New("the chain refused the transaction")

// execute sends a transaction, as raw wrote it. With errAborted it is over; after another error
// nobody knows what became of it.
func (n *node) execute(ctx context.Context, raw string) (hash string, err error) {
	var out struct {
		Execution struct {
			Hash   string   `json:"tx_hash"`
			Status vmStatus `json:"status"`
		} `json:"execution_info"`
	}
	err = n.ask(ctx, &out, "rooch_executeRawTransaction", raw, map[string]bool{"withOutput": true})
	if err != nil {
		return "", err
	}
	return out.Execution.Hash, out.Execution.Status.err()
}

// dryRun asks what the chain would do with a transaction that nobody signed, and what it would take for
// that, in units of RGas. Nothing is made.
func (n *node) dryRun(ctx context.Context, t Transaction) (fee uint64, err error) {
	var out struct {
		Output struct {
			Fee    json.Number `json:"gas_used"`
			Status vmStatus    `json:"status"`
		} `json:"raw_output"`
	}
	err = n.ask(ctx, &out, "rooch_dryRunRawTransaction", "0x"+hex.EncodeToString(t.data()))
	if err != nil {
		return 0, err
	}
	if err := out.Output.Status.err(); err != nil {
		return 0, err
	}
	fee, err = parseDecimal(out.Output.Fee.String())
	if err != nil {
		return 0, n.Failed("with a dry run", err)
	}
	return fee, nil
}

// vmStatus is what the chain says that a transaction came to.
type vmStatus struct {
	Type     string `json:"type"`
	Location string `json:"location"`
	Abort    string `json:"abort_code"`
}

func (s vmStatus) err() error {
	if s.Type == "executed" {
		return nil
	}
	return fmt.Errorf("%w: %s at %s, code %s", errAborted, x402.Quote(s.Type), x402.Quote(s.Location),
		x402.Quote(s.Abort))
}

// object reads an object's bytes; nil: there is no such object.
func (n *node) object(ctx context.Context, id objectID) ([]byte, error) {
	return n.state(ctx, "rooch_getObjectStates", id.String())
}

// field reads the bytes of a table's entry.
func (n *node) field(ctx context.Context, table objectID, name string) ([]byte, error) {
	return n.state(ctx, "rooch_getFieldStates", table.String(), []string{fieldKey(name).String()})
}

func (n *node) state(ctx context.Context, method string, params ...any) ([]byte, error) {
	var list []*struct {
		Value string `json:"value"`
	}
	params = append(params, map[string]bool{"decode": false, "showDisplay": false})
	if err := n.ask(ctx, &list, method, params...); err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, n.Failed(method, errLayout)
	}
	if list[0] == nil {
		return nil, nil
	}
	value, err := hex.DecodeString(strings.TrimPrefix(list[0].Value, "0x"))
	if err != nil {
		return nil, n.Failed(method, errLayout)
	}
	return value, nil
}

// ask refuses a node of another network: who chooses the node chooses the evidence.
func (n *node) ask(ctx context.Context, result any, method string, params ...any) error {
	if n.verified.Load() {
		return n.Call(ctx, result, method, params...)
	}
	var id json.Number
	if err := n.Call(ctx, &id, "rooch_getChainID"); err != nil {
		return err
	}
	if id.String() != decimal(n.chainID()) {
		return x402.Errorf(x402.RPCError,
			"the node of %s has the chain id %s, not %d", n.Network, x402.Quote(id.String()), n.chainID()).
			WithHint("the owner corrects rpc under [networks.%q] in config.toml", n.Network)
	}
	n.verified.Store(true)
	return n.Call(ctx, result, method, params...)
}
