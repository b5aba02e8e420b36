package dashboard

import (
	"context"
	"fmt"
	"strings"
	"time"

	"rsc.io/qr"

	"x402-wallet/tools"
	"x402-wallet/x402"
)

const (
	// nodesWait is how long a page waits for the networks' nodes: most answer within it, and a page that
	// comes late is worse than one that says of a network that it did not answer.
	nodesWait = 2 * time.Second
	// balancesFor is how long balances are shown again before the nodes are asked once more: a page that
	// updates itself shall not be a load on them.
	balancesFor = time.Minute
)

type balances struct {
	Rows     []holding
	Deposits []deposit // with sellers, as far as they were not used up
	Empty    []string  // networks with nothing
	Silent   []string  // networks whose node did not answer
	At       time.Time
	moment   int64 // of the ledger, then
}

// holding is a token on a network: the agent's own, an owner's that it is delegated, or their vault's.
type holding struct {
	Network, Symbol  string
	Balance, Waiting string // in whole tokens; "": none
	// what an owner lets the agent spend, in whole tokens: Delegated of the balance, InVault of it at this
	// moment, Allowed of their own account besides (Owner); "": nothing of the kind
	Delegated, InVault, Allowed string
	Owner                       string
}

// deposit is what lies with a seller (batch-settlement).
type deposit struct{ Server, Network, Locked string }

// holdingOf is a row that the chain has answered.
func holdingOf(row tools.BalanceRow) holding {
	h := holding{Network: x402.NetworkName(row.Network), Symbol: row.Symbol,
		Balance: row.Balance.Units(row.Decimals)}
	if !row.Held.IsZero() {
		h.Waiting = row.Held.Units(row.Decimals)
	}
	switch {
	case row.IsVault():
		h.InVault = row.Available.Units(row.Decimals)
	case row.Owner != "":
		h.Owner, h.Allowed = row.Owner, row.Delegated.Units(row.Decimals)
	case row.Delegated != nil:
		h.Delegated = row.Delegated.Units(row.Decimals)
	}
	return h
}

// balances asks each network's node, at most once in balancesFor while nothing is paid.
func (l *look) balances() (balances, error) {
	head, err := l.wallet.Store.Head(l.r.Context())
	if err != nil {
		return balances{}, err
	}
	l.reading.Lock()
	defer l.reading.Unlock()
	now := l.o.Now()
	if age := now.Sub(l.read.At); age >= 0 && age < balancesFor && head.Seq == l.read.moment {
		return l.read, nil
	}
	ctx, cancel := context.WithTimeout(l.r.Context(), nodesWait)
	defer cancel()
	list, _, err := l.wallet.OnChain(ctx, "", "")
	if err != nil {
		return balances{}, err
	}
	read := balances{At: now, moment: head.Seq}
	for _, row := range list {
		name := x402.NetworkName(row.Network)
		switch {
		case row.Error != "":
			read.Silent = append(read.Silent, name)
		case !row.HasMoney():
			read.Empty = append(read.Empty, name)
		default:
			read.Rows = append(read.Rows, holdingOf(row))
		}
	}
	channels, err := l.wallet.Deposits.List(l.r.Context(), "")
	if err != nil {
		return balances{}, err
	}
	for _, c := range channels {
		if !c.Locked.IsZero() {
			read.Deposits = append(read.Deposits, deposit{c.Server, x402.NetworkName(c.Network),
				c.Prices["locked"]})
		}
	}
	if l.r.Context().Err() == nil { // of a browser that has left nothing is kept
		l.read = read
	}
	return read, nil
}

type address struct {
	Name, Address string
	Account       string // "": the wallet's own
	Networks      string // of this wallet, where it is good
	QR            string // the path of an inline SVG, and its size in modules
	Modules       int
}

// addMoney shows the addresses. Its QR codes are drawn here, as everything of the page is.
func addMoney(l *look) (frame, error) {
	solana, evm := l.wallet.Keys.Addresses()
	list := []address{{Name: "EVM", Address: evm}, {Name: "Solana", Address: solana}}
	for _, other := range l.wallet.Accounts {
		list = append(list, address{Name: "EVM", Address: other.EVM, Account: other.Name},
			address{Name: "Solana", Address: other.Solana, Account: other.Name})
	}
	for i := range list {
		a := &list[i]
		var networks []string
		for _, network := range l.wallet.Networks {
			if x402.IsSolana(network) == (a.Name == "Solana") {
				networks = append(networks, x402.NetworkName(network))
			}
		}
		a.Networks = strings.Join(networks, ", ")
		code, err := qr.Encode(a.Address, qr.L)
		if err != nil {
			return frame{}, fmt.Errorf("draw the QR code: %w", err)
		}
		a.QR, a.Modules = drawn(code), code.Size+2*quietZone
	}
	return frame{Title: "Add money", Here: "money", Body: moneyBody(list)}, nil
}

// quietZone is the white margin that readers of QR codes want, in modules.
const quietZone = 4

// drawn is a QR code's dark modules as the path of an SVG, a run of a row at a time.
func drawn(code *qr.Code) string {
	var path strings.Builder
	for y := range code.Size {
		for x := 0; x < code.Size; x++ {
			run := 0
			for x+run < code.Size && code.Black(x+run, y) {
				run++
			}
			if run > 0 {
				fmt.Fprintf(&path, "M%d %dh%dv1h-%dz", x+quietZone, y+quietZone, run, run)
				x += run
			}
		}
	}
	return path.String()
}
