package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"x402-wallet/internal/config"
	"x402-wallet/pay"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// testSeller sells the smallest thing there is for play money of a test network, which a faucet gives.
const testSeller = "https://x402.payai.network/api/base-sepolia/paid-content"

// fund shows where money is expected first, and waits for it if the person wants that.
func (b *beginning) fund(ctx context.Context, rules *config.Config) {
	networks := watched(rules)
	if len(networks) == 0 {
		b.ui.note("nothing can be paid on any network: name one under [networks] in config.toml")
		return
	}
	network := networks[0]
	if b.talk != nil && ctx.Err() == nil {
		chain := wallet.ChainEVM
		if x402.IsSolana(network) {
			chain = wallet.ChainSolana
		}
		i := slices.IndexFunc(b.out.Addresses, func(a addressOut) bool { return a.Chain == chain })
		b.ui.say("\nSend USDC on %s; ETH or SOL is not needed:\n  %s\n", x402.Title(network),
			b.out.Addresses[i].Address)
		b.ui.qr(b.out.Addresses[i].Address)
		b.ui.say("")
		if !b.waitForFunds {
			b.waitForFunds, _ = b.talk.yes(ctx, "Wait here until it has arrived?", false)
		}
	}
	if !b.waitForFunds || ctx.Err() != nil {
		return
	}
	if err := b.await(ctx, networks); err != nil && ctx.Err() == nil {
		b.failed("the balance could not be asked for", err)
	}
}

// fundsInterval is how often the nodes are asked: public ones count the questions.
const fundsInterval = 5 * time.Second

// await asks the networks' nodes until there is more than there was, or the person goes on.
func (b *beginning) await(ctx context.Context, networks []string) error {
	w, err := b.p.OpenWallet(ctx, nil, nil)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	var typed <-chan answer
	ends := "Ctrl-C"
	if b.talk != nil {
		typed, ends = b.talk.line(), "Enter or Ctrl-C"
	}
	b.ui.note("waiting for money on %s … (%s goes on without it)", x402.NetworkName(networks[0]), ends)
	seen := map[string]string{}
	for first := true; ; first = false {
		for _, network := range networks {
			arrived, err := more(ctx, w, network, seen, first)
			if err != nil {
				return err
			}
			b.out.Arrived = append(b.out.Arrived, arrived...)
		}
		for _, sum := range b.out.Arrived {
			b.ui.note("%s %s", paint(b.ui.colorErr, green, "arrived:"), sum)
		}
		if len(b.out.Arrived) > 0 {
			return nil
		}
		select {
		case <-typed:
			b.talk.reading = false
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(fundsInterval):
		}
	}
}

// watched are the networks where money is expected, the best first: those that are preferred, else those that
// the file names. All of them have a node.
func watched(rules *config.Config) []string {
	nodes := rules.Nodes()
	hasNode := func(ids []string) []string {
		return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
			return nodes[id] == "" || x402.Namespace(id) == "rooch" // whose channels are paid from a hub
		})
	}
	if list := hasNode(rules.Policy.Prefer); len(list) > 0 {
		return list
	}
	return hasNode(slices.Sorted(maps.Keys(rules.Networks)))
}

// more is what there is more of on a network than was seen. What the first look finds, of a key that was
// imported, has arrived too. A node that does not answer this time may the next.
func more(ctx context.Context, w *tools.Wallet, network string, seen map[string]string,
	first bool) (list []string, err error) {
	rows, _, err := w.OnChain(ctx, network, "")
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if row.Available == nil {
			continue
		}
		key, now := row.Network+row.Asset, row.Available.Units(row.Decimals)
		if was, known := seen[key]; !row.Available.IsZero() && was != now && (known || first) {
			list = append(list, fmt.Sprintf("%s %s on %s", now, row.Symbol, x402.NetworkName(row.Network)))
		}
		seen[key] = now
	}
	return list, nil
}

// buy offers a first purchase: in the demo's world, or of what the person names.
func (b *beginning) buy(ctx context.Context, passphrase []byte) {
	if b.talk == nil || ctx.Err() != nil {
		return
	}
	b.ui.note("\nTry a first purchase now?\n" +
		"  demo     on this machine, with play money and a wallet that is thrown away\n" +
		"  a URL    with this wallet; for play money of a test network, if it has some:\n" +
		"           " + testSeller)
	for ctx.Err() == nil {
		given, err := b.talk.ask(ctx, "What (Enter: nothing)?")
		switch {
		case err != nil || given == "":
			return
		case given == "demo":
			limited, cancel := context.WithTimeout(ctx, demoPatience)
			err = (&demo{out: b.ui.out, started: time.Now()}).run(limited, "")
			cancel()
		default:
			if err = webURL(given); err == nil {
				err = b.buyURL(ctx, given, passphrase)
			}
		}
		if err == nil {
			return
		}
		if wrong, ok := errors.AsType[usageError](err); ok {
			b.ui.note("%s: %s", wrong.text, safe(wrong.hint))
		} else {
			b.ui.problem(x402.AsError(err))
		}
	}
}

// buyURL says what a URL costs, and pays exactly that, if the person agrees.
func (b *beginning) buyURL(ctx context.Context, url string, passphrase []byte) error {
	w, err := b.p.OpenWallet(ctx, typed(passphrase), nil)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	in := tools.PayIn{URL: url}
	price, err := waitFor(b.ui, "waiting for the seller and the nodes", func() (pay.Estimate, error) {
		return w.Estimate(ctx, in)
	})
	if err != nil {
		return err
	}
	if !price.PaymentRequired || price.Chosen == nil {
		b.ui.estimate(price)
		return nil
	}
	o := price.Options[*price.Chosen]
	kind, isTest := "real money", x402.IsTestnet(o.Network)
	if isTest {
		kind = "play money of a test network"
	}
	agreed, err := b.talk.yes(ctx, fmt.Sprintf("That is %s in %s on %s, %s. Pay it?", o.Price, safe(o.Symbol),
		x402.NetworkName(o.Network), kind), isTest)
	if err != nil || !agreed {
		return nil
	}
	in.MaxAmount, in.Network, in.Asset = o.Amount.String(), o.Network, o.Asset
	err = b.ui.buy(ctx, w.Engine, "", func() (pay.Result, error) { return w.Pay(ctx, in) })
	if _, said := errors.AsType[exitError](err); said {
		return nil
	}
	return err
}
