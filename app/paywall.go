package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/svm"
	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/paywall"
	"x402-wallet/seller"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// ServePaywall charges for the tools of another MCP server (SPEC §8). The wallet gives it addresses
// to be paid to, a ledger to write sales into and nodes to look at; it is never unlocked.
func (a *app) ServePaywall(ctx context.Context, file string) error {
	conf, err := config.LoadPaywall(file)
	if err != nil {
		return setupFailed(err)
	}
	keys, err := wallet.Open(a.home)
	if err != nil {
		return err
	}
	solana, evm := keys.Addresses()
	own := map[string]string{"eip155": evm, "solana": solana}
	if err := keys.Close(); err != nil {
		return err
	}
	rules, err := a.rules()
	if err != nil {
		return err
	}
	store, err := a.OpenLedger(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	wall, err := paywall.New(a.sold(conf, rules, own, store))
	if err != nil {
		return setupFailed(fmt.Errorf("%s: %w", file, err))
	}
	front := &paywall.Proxy{Paywall: wall, Command: conf.Command, Stderr: os.Stderr, URL: conf.URL,
		Version: a.version, Log: a.log}
	if err := front.Open(ctx); err != nil {
		var coded *x402.Error
		if !errors.As(err, &coded) {
			coded = x402.Errorf(x402.ServerUnavailable, "%w", err)
		}
		return coded.WithHint("correct %s, or see on stderr why the server did not start", file)
	}
	for _, warning := range wall.Check(ctx) {
		a.log.Warn(warning)
	}
	if conf.Listen == "" {
		return front.Stdio(ctx, os.Stdin, os.Stdout)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", conf.Listen)
	if err != nil {
		var why syscall.Errno // without Go's words around it
		if errors.As(err, &why) {
			err = why
		}
		return errors.Join(setupFailed(fmt.Errorf("%s: listen: nothing can be served at %s: %w", file,
			conf.Listen, err)), front.Close(ctx))
	}
	a.log.Info("the paywall serves MCP", "url", "http://"+listener.Addr().String()+"/mcp")
	return front.HTTP(ctx, listener)
}

func setupFailed(err error) error {
	var coded *x402.Error
	if errors.As(err, &coded) {
		return err
	}
	return x402.Errorf(x402.SetupFailed, "%w", err).WithHint("see x402-wallet help paywall for the file")
}

// sold is the file as the paywall knows it.
func (a *app) sold(conf *config.Paywall, rules *config.Config, own map[string]string,
	store *history.Store) paywall.Options {
	nodes := seller.NodeClient(rules.Policy.Loopback)
	rpc := nodeURLs(rules)
	onEVM := evm.New(evm.Options{RPC: rpc, HTTP: nodes, Now: time.Now})
	onSolana := svm.New(svm.Options{RPC: rpc, HTTP: nodes, Now: time.Now})
	asked := *rules
	if len(conf.Facilitators) > 0 {
		asked.Facilitators = conf.Facilitators
	}
	o := paywall.Options{
		Facilitators: a.facilitators(&asked, nodes), Store: store, Version: conf.Version,
		Dialect:    conf.Dialect,
		VerifyOnly: conf.VerifyOnly, Assets: x402.NewRegistry(rules.Assets), Log: a.log,
		Status: func(ctx context.Context, e x402.Evidence) (x402.Status, error) {
			if x402.IsSolana(e.Network) {
				return onSolana.Status(ctx, e)
			}
			return onEVM.Status(ctx, e)
		},
	}
	for _, t := range conf.Tools {
		sold := paywall.Tool{Name: t.Name, Description: t.Description, Upfront: t.Upfront,
			MaxTimeout: t.MaxTimeout}
		for _, option := range t.Accepts {
			if option.PayTo == "" {
				option.PayTo = own[x402.Namespace(option.Network)]
			}
			sold.Accepts = append(sold.Accepts, paywall.Option{Network: option.Network, PayTo: option.PayTo,
				Price:  option.Price,
				Amount: option.Amount, Asset: option.Asset})
		}
		o.Tools = append(o.Tools, sold)
	}
	return o
}
