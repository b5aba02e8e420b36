package app

import (
	"context"
	"net"
	"strings"
	"time"

	"x402-wallet/internal/loopback"
	"x402-wallet/internal/metrics"
	"x402-wallet/internal/relay"
	"x402-wallet/internal/steps"
	"x402-wallet/paywall"
	"x402-wallet/paywall/book"
	"x402-wallet/tools"
	"x402-wallet/x402"
)

// listenMetrics opens the place where metrics are read, if there is to be one, and says where it is. A socket
// is for this process's user and its group; an address of this machine is for all its users, who see then
// what each agent pays.
func listenMetrics(ctx context.Context, place string) (l net.Listener, at string, err error) {
	if place == "" {
		return nil, "", nil
	}
	if strings.Contains(place, "/") {
		l, err = relay.Listen(ctx, place, 0o660, "")
		return l, place, err
	}
	l, err = new(net.ListenConfig).Listen(ctx, "tcp", place)
	if err != nil {
		return nil, "", x402.Errorf(x402.SetupFailed, "no metrics can be served at %s: %w", place, err)
	}
	on := l.Addr().(*net.TCPAddr)
	if !on.IP.IsLoopback() {
		_ = l.Close()
		return nil, "", x402.Errorf(x402.InvalidArgument, "%s can be reached from other machines, and "+
			"metrics are for whoever reaches them", place).
			WithHint("give 127.0.0.1:PORT, or the path of a socket")
	}
	return l, "http://" + on.String() + "/metrics", nil
}

func (a *app) serveMetrics(ctx context.Context, l net.Listener, sources ...metrics.Source) {
	door := loopback.Door{Hosts: loopback.Local}
	if _, isTCP := l.Addr().(*net.TCPAddr); !isTCP { // which no browser reaches
		door.Hosts = func(string) bool { return true }
	}
	process := &metrics.Process{Version: a.version, Started: time.Now()}
	a.serveHTTP(ctx, l, door, metrics.Handler(append([]metrics.Source{process, &a.parties}, sources...)...))
}

// isAsked reports whether a step is a question to a party: how those answer is counted where they are asked.
func isAsked(s steps.Step) bool { return s.Name == steps.Facilitator || s.Name == steps.Node }

func countSteps(calls *metrics.Calls) func(steps.Report) {
	return func(r steps.Report) {
		for _, s := range r.Steps {
			if !isAsked(s) {
				calls.Step(string(s.Name), s.Took)
			}
		}
	}
}

// ServeMetrics serves the figures of a ledger until ctx ends; wait waits for that.
func (a *app) ServeMetrics(ctx context.Context, place string,
	wallet func(context.Context) (*tools.Wallet, func(), error)) (at string, wait func(), err error) {
	l, at, err := listenMetrics(ctx, place)
	if err != nil || l == nil {
		return "", func() {}, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.serveMetrics(ctx, l, metrics.Ledger{Read: func(ctx context.Context) (metrics.Standing, error) {
			w, used, err := wallet(ctx)
			if err != nil {
				return metrics.Standing{}, err
			}
			defer used()
			return w.Standing(ctx)
		}})
	}()
	return at, func() { <-done }, nil
}

// owedIn adds up what was charged in channels and not claimed, by network.
func owedIn(channels []book.SoldChannel, assets *x402.Registry) map[string]metrics.Owed {
	owed := map[string]metrics.Owed{}
	for _, c := range channels {
		o := owed[c.Network]
		asset, _ := assets.Asset(c.Network, c.Config.Token)
		o.Channels++
		o.Dollars += asset.Dollars(c.Owed())
		if o.Since.IsZero() || c.OwedSince.Before(o.Since) {
			o.Since = c.OwedSince
		}
		owed[c.Network] = o
	}
	return owed
}

// countSales counts what requests came to, what sales earned, and how long their steps took.
func countSales(sales *metrics.Sales) func(steps.Report) {
	return func(r steps.Report) {
		sale := metrics.Sale{Tool: r.Tool, Outcome: r.Outcome, Code: r.Code,
			Steps: map[string]time.Duration{}}
		if r.State == string(book.SaleSettled) {
			sale.Network, sale.Earned = r.Network, r.Price
		}
		for _, s := range r.Steps {
			if !isAsked(s) {
				sale.Steps[string(s.Name)] += s.Took
			}
		}
		sales.Sale(sale)
	}
}

// shopFor is how a paywall stands, as metrics say it: of each network on which it is paid.
func shopFor(proxy *paywall.Proxy, h paywallHome) metrics.Shop {
	assets := x402.NewRegistry(h.rules.Assets)
	return metrics.Shop{
		Load: func() metrics.Load { return metrics.Load(proxy.Load()) },
		Owed: func(ctx context.Context) (map[string]metrics.Owed, error) {
			channels, err := h.book.OwedChannels(ctx)
			owed := owedIn(channels, assets)
			for _, payee := range proxy.Paywall.Payees() { // nothing is owed: a figure, too
				if _, owes := owed[payee.Network]; !owes {
					owed[payee.Network] = metrics.Owed{}
				}
			}
			return owed, err
		},
	}
}
