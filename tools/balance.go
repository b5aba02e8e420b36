package tools

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"x402-wallet/budget/standing"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// balanceIn is what x402_check_balance takes.
type balanceIn struct {
	Network string `json:"network,omitempty" jsonschema:"default all"`
	Asset   string `json:"asset,omitempty" jsonschema:"symbol or address"`
}

// BalanceOut is the answer of x402_check_balance. Amounts are atomic units, budgets dollars.
type BalanceOut struct {
	Networks []BalanceRow    `json:"networks"`
	More     string          `json:"more,omitempty"`     // what was left out of networks
	Channels []channelRow    `json:"channels,omitempty"` // that owners fund, as the ledger knows them
	Budget   standing.Report `json:"budget"`
	Next     x402.Next       `json:"next"`
}

// shape leaves out what only an agent with a name finds among the budgets: it explains itself.
func (BalanceOut) shape(s *jsonschema.Schema) { leaveOut(s.Properties["budget"], "agent", "teams") }

// allNetworks asks for every network, also where there is nothing.
const allNetworks = "all"

// channelRow is a channel with a seller that an owner funds (batch-settlement): whose money it is, and what
// may be promised of it yet.
type channelRow struct {
	Host      string       `json:"host"`
	Network   string       `json:"network"`
	Owner     string       `json:"owner"`
	Asset     string       `json:"asset"`
	Available money.Amount `json:"available"`
	Price     string       `json:"price"` // that in dollars
	Stopped   string       `json:"stopped,omitempty"`
}

// BalanceRow is one asset on one network. With an error there are no figures: an unreachable node
// is never a zero.
type BalanceRow struct {
	Network   string        `json:"network"`
	Address   string        `json:"address"`
	Owner     string        `json:"owner,omitempty"` // of whose account Delegated may be taken (EVM)
	Asset     string        `json:"asset"`
	Symbol    string        `json:"symbol"`
	Decimals  uint8         `json:"decimals"`
	Balance   *money.Amount `json:"balance,omitempty"`
	Delegated *money.Amount `json:"delegated,omitempty"`
	Held      *money.Amount `json:"held,omitempty"`
	Available *money.Amount `json:"available,omitempty"`
	Error     string        `json:"error,omitempty"`
	ErrorCode x402.Code     `json:"errorCode,omitempty"`

	vault string // the row is of the owner's vault; "": of what the agent has, or is delegated
}

const balanceDescription = `Per network the balance, what the owner lets you spend, what is held; what each budget has left.`

// Balance reads the chains and the budgets. Its error is an *x402.Error; trouble with one node is in its row.
func (w *Wallet) Balance(ctx context.Context, network, asset string) (out BalanceOut, err error) {
	out.Networks, out.More, err = w.onChain(ctx, network, asset, asset == "")
	if err != nil {
		return BalanceOut{}, err
	}
	out.Budget, err = w.budgets(ctx)
	if err != nil {
		return BalanceOut{}, withCode(x402.CheckFailed, "the budgets could not be read", err)
	}
	out.Channels, err = w.ownersChannels(ctx)
	if err != nil {
		return BalanceOut{}, withCode(x402.CheckFailed, "the channels could not be read", err)
	}
	out.Next = afterLook(out.Networks, w.Engine.Rules.Account)
	if slices.ContainsFunc(out.Channels, func(c channelRow) bool { return !c.Available.IsZero() }) {
		out.Next = x402.Next{Do: x402.Done}
	}
	return out, nil
}

// ownersChannels are those that owners fund, until they have had back what was left.
func (w *Wallet) ownersChannels(ctx context.Context) (rows []channelRow, err error) {
	if w.Deposits == nil {
		return nil, nil
	}
	list, err := w.Deposits.List(ctx, "")
	for _, c := range list {
		if c.IsOwners && !c.IsOver {
			rows = append(rows, channelRow{Host: c.Server, Network: c.Network, Owner: c.Payer, Asset: c.Asset,
				Available: c.Left, Price: c.Prices["left"], Stopped: c.Stopped})
		}
	}
	return rows, err
}

// OnChain reads the chains. Of networks that nobody named only those are shown on which there is something;
// more says what was left out.
func (w *Wallet) OnChain(ctx context.Context, network, asset string) (rows []BalanceRow, more string,
	err error) {
	return w.onChain(ctx, network, asset, false)
}

// onChain is OnChain, with a row for everything else that there is something of, where that is asked for.
func (w *Wallet) onChain(ctx context.Context, network, asset string, everything bool) (rows []BalanceRow,
	more string, err error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	rows = []BalanceRow{}
	networks, err := w.networksAsked(network)
	if err != nil {
		return rows, "", err
	}
	for _, network := range networks {
		vault := w.EVM.VaultOn(network)
		for i, a := range w.assets(network, asset) {
			row := BalanceRow{Network: network, Asset: a.Address, Symbol: a.Symbol, Decimals: a.Decimals}
			if vault != "" && i == 0 { // it pays first
				ofVault := row
				ofVault.vault = vault
				rows = append(rows, ofVault)
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 && asset != "" {
		return rows, "", x402.Errorf(x402.InvalidArgument, "the asset is not one this wallet knows on %s",
			titles(networks)).
			WithHint("leave it out for each network's own dollar; the owner can add assets")
	}
	var others []BalanceRow
	var reading sync.WaitGroup
	if everything {
		reading.Go(func() { others = w.others(ctx, networks) })
	}
	w.read(ctx, rows)
	reading.Wait()
	rows = withOthers(rows, others)
	if network == "" {
		rows, more = w.leaveOut(ctx, rows)
	}
	return rows, more, nil
}

// networksAsked are the networks that a call means by "", by "all", or by the name of one.
func (w *Wallet) networksAsked(network string) ([]string, error) {
	if network == "" || network == allNetworks {
		return w.Networks, nil
	}
	known, ok := x402.Network(network)
	if !ok || !slices.Contains(w.Networks, known) {
		return nil, x402.Errorf(x402.InvalidArgument, "the network %s is not configured",
			x402.Quote(network)).WithHint("configured are: %s", titles(w.Networks))
	}
	return []string{known}, nil
}

// IsVault reports whether the row is of the owner's vault: else it is of what the agent has, or is delegated.
func (r BalanceRow) IsVault() bool { return r.vault != "" }

// titles are networks by name and CAIP-2, for a text.
func titles(networks []string) string {
	list := make([]string, 0, len(networks))
	for _, network := range networks {
		list = append(list, x402.Title(network))
	}
	return strings.Join(list, ", ")
}

// leaveOut takes out the rows of networks that nobody named and on which there is nothing: no money, and no
// payment that is open. It says what is left out; a node that did not answer is not a zero.
func (w *Wallet) leaveOut(ctx context.Context, rows []BalanceRow) (shown []BalanceRow, said string) {
	open, err := w.Store.Unfinished(ctx, "", 200)
	if err != nil {
		return rows, ""
	}
	inUse := map[string]bool{}
	for _, row := range rows {
		inUse[row.Network] = inUse[row.Network] || row.HasMoney()
	}
	for _, p := range open {
		inUse[p.Network] = true
	}
	shown = []BalanceRow{}
	empty, silent := 0, 0
	for _, row := range rows {
		switch {
		case !slices.Contains(w.Unnamed, row.Network) || inUse[row.Network]:
			shown = append(shown, row)
		case row.Error != "":
			silent++
		default:
			empty++
		}
	}
	switch {
	case empty > 0 && silent > 0:
		said = fmt.Sprintf("nothing on %d more networks; %d more did not answer", empty, silent)
	case empty > 0:
		said = fmt.Sprintf("nothing on %d more networks", empty)
	case silent > 0:
		said = fmt.Sprintf("%d more networks did not answer", silent)
	}
	return shown, said
}

// HasMoney reports whether there is anything of the agent's, or that an owner lets it spend.
func (r BalanceRow) HasMoney() bool {
	for _, amount := range []*money.Amount{r.Balance, r.Delegated, r.Held} {
		if amount != nil && !amount.IsZero() {
			return true
		}
	}
	return false
}

// read fills the rows, all at once.
func (w *Wallet) read(ctx context.Context, rows []BalanceRow) {
	var wait sync.WaitGroup
	for i := range rows {
		wait.Go(func() {
			row := &rows[i]
			err := w.asking(ctx, row.Network, func(ctx context.Context) error {
				w.fill(ctx, row)
				return nil
			})
			if err != nil {
				row.Error, row.ErrorCode = err.Message, err.Code
			}
		})
	}
	wait.Wait()
}

// asking asks a chain in a goroutine, which the boundary of a call does not reach into, in the time that its
// node has.
func (w *Wallet) asking(ctx context.Context, network string, do func(context.Context) error) (e *x402.Error) {
	if slices.Contains(w.Unnamed, network) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, publicWait)
		defer cancel()
	}
	defer func() {
		if p := recover(); p != nil {
			w.Engine.Log.Error("a chain panicked", "network", network, "type", reflect.TypeOf(p), "stack",
				string(debug.Stack()))
			e = x402.Errorf(x402.Internal, "the wallet had an internal error")
		}
	}()
	if err := do(ctx); err != nil {
		return withCode(x402.CheckFailed, "the balance could not be read", err)
	}
	return nil
}

// afterLook is the next step after a look at balances: money is there, or is to be sent, or no node
// told.
func afterLook(rows []BalanceRow, account string) x402.Next {
	silent := 0
	rows = slices.DeleteFunc(slices.Clone(rows), BalanceRow.IsCoin)
	for _, r := range rows {
		switch {
		case r.Available == nil:
			silent++
		case !r.Available.IsZero():
			return x402.Next{Do: x402.Done}
		}
	}
	switch {
	case len(rows) == 0:
		return x402.Next{Do: x402.Done}
	case silent == len(rows):
		return x402.Next{Do: x402.Repeat, Why: "no node answered; what it would say is not known"}
	}
	return x402.Next{Do: x402.AskPerson, Why: "nothing is there to spend",
		Command: pay.AddressCommand(account),
		Say:     "The wallet has no money to spend; this shows the addresses to send some to."}
}

// budgets is what is left of each.
func (w *Wallet) budgets(ctx context.Context) (standing.Report, error) {
	facts, err := w.Engine.BudgetFacts(ctx)
	return standing.Of(w.Engine.Rules, pay.AgentFrom(ctx), facts), err
}

// assets are those asked for: a symbol or address, else the network's own dollar.
func (w *Wallet) assets(network, wanted string) []x402.AssetInfo {
	all := w.Engine.Assets.Assets(network)
	if wanted == "" {
		return all[:min(len(all), 1)] // the default comes first
	}
	return slices.DeleteFunc(all, func(a x402.AssetInfo) bool {
		return !strings.EqualFold(a.Symbol, wanted) && a.Key() != money.NewAsset(network, wanted)
	})
}

// fill reads a row's figures, or says why there are none.
func (w *Wallet) fill(ctx context.Context, row *BalanceRow) {
	on := w.chainOf(row.Network)
	if on == nil {
		row.Error, row.ErrorCode = "this wallet does not know this kind of chain", x402.CheckFailed
		return
	}
	row.Address = on.Address()
	read := on.Funds
	if row.vault != "" {
		read, row.Address = w.Engine.Owners.Funds, row.vault
	}
	asset, _ := w.Engine.Assets.Asset(row.Network, row.Asset)
	funds, err := read(ctx, row.Network, asset)
	if err == nil {
		var held map[string]money.Amount
		if held, err = w.Store.HeldOn(ctx, row.Network, funds.Source); err == nil {
			h := held[asset.Key().Address]
			free := funds.Free.SubFloor(h)
			row.Balance, row.Delegated, row.Held, row.Available = &funds.Balance, funds.Delegated, &h, &free
			if a := funds.Allowance; a != nil {
				row.Owner, row.Delegated = a.Owner, &a.Approved
			}
			return
		}
	}
	coded := withCode(x402.CheckFailed, "the balance could not be read", err)
	row.Error, row.ErrorCode = coded.Message, coded.Code
}

// coins are the symbols of networks' own money, where that is not ETH.
var coins = map[string]string{"eip155:137": "POL", "eip155:80002": "POL", "eip155:43114": "AVAX",
	"eip155:43113": "AVAX", "eip155:56": "BNB", "eip155:143": "MON", "eip155:10143": "MON",
	"eip155:14": "FLR", "eip155:31612": "BTC", "eip155:31611": "BTC", "eip155:50": "XDC",
	"eip155:51": "TXDC", "eip155:42220": "CELO", "eip155:11142220": "CELO", "eip155:1329": "SEI",
	"eip155:1328": "SEI", "eip155:4689": "IOTX", "eip155:3338": "PEAQ", "eip155:1514": "IP",
	"eip155:41923": "EDU", "eip155:196": "OKB", "eip155:1952": "OKB"}

// ether are the networks of Ethereum's own money.
var ether = []string{"eip155:1", "eip155:11155111", "eip155:8453", "eip155:84532", "eip155:42161",
	"eip155:421614", "eip155:10", "eip155:11155420", "eip155:130", "eip155:1301", "eip155:480", "eip155:4801",
	"eip155:4326", "eip155:2741", "eip155:11124", "eip155:4663"}

// paidByToken are the networks without a coin of their own. What one has of their default token is in the
// token's row already; Arc and Stable count the same money once more, in 18 decimals.
var paidByToken = []string{"eip155:5042", "eip155:5042002", "eip155:988", "eip155:2201", x402.TempoMainnet,
	x402.TempoTestnet}

// coinOf is what a network's own money is called, which fees are paid in, and its decimals; "coin" where
// nobody knows.
func coinOf(caip2 string) (symbol string, decimals uint8) {
	switch {
	case x402.IsSolana(caip2):
		return "SOL", 9
	case slices.Contains(ether, caip2):
		return "ETH", 18
	}
	return cmp.Or(coins[caip2], "coin"), 18
}
