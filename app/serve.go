package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/svm"
	"x402-wallet/history"
	"x402-wallet/history/verify"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/config/paywallfile"
	"x402-wallet/internal/metrics"
	"x402-wallet/internal/passkey"
	"x402-wallet/pay"
	"x402-wallet/paywall"
	"x402-wallet/scheme/batch"
	"x402-wallet/scheme/permit2"
	"x402-wallet/seller"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/wallet/agent"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
)

// backgroundDelay lets the server answer its host first: looking up unfinished payments can wait.
const backgroundDelay = 300 * time.Millisecond

// ServeMCP runs the MCP server on stdin and stdout until the client goes away or ctx ends: the wallet's
// service, where there is one, or this process. account is the one that it pays from; "": the wallet's own.
func (a *app) ServeMCP(ctx context.Context, account string) error {
	if passed, err := a.passToService(ctx, account); passed {
		return err
	}
	open := a.openForAgent
	if account != "" {
		ctx = pay.WithAgent(ctx, account)
		open = func(ctx context.Context) (*tools.Wallet, error) {
			if a.noHome != nil {
				return nil, a.noHome
			}
			rules, err := a.rules()
			if err == nil && !rules.HasAccount(account) {
				return nil, config.NoAccount(account)
			}
			return a.openForAgent(ctx) // which says what is wrong with the rules
		}
	}
	server := &tools.Server{Version: a.version, Log: a.log, Mounts: true, Open: open,
		Background: backgroundDelay, ClientWait: clientWait(a.env)}
	defer a.showMetrics(ctx, server)()
	percent := debug.SetGCPercent(-1) // a collection would take a quarter of the start
	time.AfterFunc(backgroundDelay, func() { debug.SetGCPercent(percent) })
	return server.Run(ctx, os.Stdin, os.Stdout)
}

// clientWait is how long the host that started this process waits for a tool, if its environment says so.
func clientWait(env environ.Env) time.Duration {
	milliseconds, err := strconv.ParseUint(env.ToolTimeout, 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(milliseconds) * time.Millisecond
}

// openForAgent opens the wallet where no person could type a passphrase; its warnings go to the log.
func (a *app) openForAgent(ctx context.Context) (*tools.Wallet, error) {
	if a.noHome != nil {
		return nil, a.noHome
	}
	w, err := a.OpenWallet(ctx, nil, nil)
	if err != nil {
		return nil, err
	}
	for _, warning := range w.Warnings {
		a.log.Warn(warning)
	}
	if keys, isOurs := w.Keys.(toolKeys); isOurs {
		a.lookAtSigners(ctx, keys.Signers)
	}
	return w, nil
}

// HoldKeys is the unlock agent: it holds the keys until ctx ends, it is told to stop, or they have
// been idle or open for too long. ready is called once it can be asked.
func (a *app) HoldKeys(ctx context.Context, passphrase wallet.Passphrase,
	ready func(until time.Time, idle time.Duration)) error {
	h, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	keys := h.keys
	if err := client.Free(ctx, a.home); err != nil { // nobody is asked for a passphrase in vain
		return err
	}
	if err := keys.Unlock(ctx, passphrase); err != nil {
		return err
	}
	if _, err := a.sealedRules(ctx, h.rules, h.store, keys); err != nil { // it would sign nothing
		return err
	}
	listener, err := client.Listen(ctx, a.home)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	started := time.Now() // no agent before this one signs any more
	guard := a.Guard(h.store, h.rules, keys)
	recorder := a.recorder(guard, agent.Rules{}, keys)
	recorder.Started = started
	server := &agent.Server{
		Locked: keys.Locked, Lock: keys.Lock, Store: h.store, Now: time.Now, Log: a.log, Guard: guard,
		Recorder:    recorder,
		Verify:      func(ctx context.Context) error { return verify.Owned(ctx, h.store, guard) },
		SigningTime: signingTime(h.rules),
		Rules: func(ctx context.Context) (agent.Rules, error) {
			return a.sealedRules(ctx, h.rules, h.store, keys)
		},
		Approver: a.approver(guard, func(ctx context.Context) (map[string]passkey.Key, error) {
			rules, err := a.rules()
			if err != nil {
				return nil, err
			}
			return passkeysOf(a.Guard(h.store, rules, keys), rules)(ctx)
		}),
	}
	ready(started.Add(wallet.MaxAge), keys.Idle)
	return server.Run(ctx, listener)
}

// sealedRules are the rules that the agent signs under: those of config.toml at this moment, if
// they are sealed, and name the signers that it began with.
func (a *app) sealedRules(ctx context.Context, began *config.Config, store *history.Store,
	keys *wallet.Wallet) (agent.Rules, error) {
	a.closeHome(ctx)
	rules, err := a.rules()
	if err == nil {
		err = sameSigners(began, rules)
	}
	if err == nil {
		err = a.Guard(store, rules, keys).VerifySeals(ctx)
	}
	if errors.Is(err, seal.ErrSuperseded) { // the rules of the file are newer now
		return a.sealedRules(ctx, began, store, keys)
	}
	if err != nil {
		return agent.Rules{}, err
	}
	signed := a.signedUnder(rules, x402.NewRegistry(rules.Assets))
	nodes, rpc := seller.NodeClient(rules.Policy.Loopback, rules.Network.Proxy), rules.Nodes()
	of := settingsOf(rules, "")
	on := chains{evm: evm.New(evm.Options{RPC: rpc, HTTP: nodes, Now: time.Now}),
		solana: svm.New(svm.Options{RPC: rpc, HTTP: nodes, Now: time.Now})}
	on.addContracts(rules, of)
	signed.Delegated = a.delegation(rules, signed.Assets, keys, nodes).OfPayment
	// these rules are sealed
	settlers := a.facilitators(rules, environ.Facilitators(rules, a.env), nodes, nil)
	ways := parts{chains: on, rules: rules, settings: of, deposits: &batch.Channels{},
		height: on.solana.Height, knows: settlers.HasSigner, guard: a.Guard(store, rules, keys)}.ways()
	bind(&signed, rules, ways)
	signed.Status = statusOf(ways)
	isSealed := func(context.Context) error { return nil } // VerifySeals said so
	if h := a.hooks(rules, store, isSealed); h != nil {
		signed.MayPay = h.MayPay
	}
	return signed, nil
}

// ServePaywall charges for the tools of another MCP server. The home provides the book of sales and
// the nodes to query; its wallet provides the addresses to be paid to where file names none, and is never
// unlocked.
// The metrics are served at a place ("": nowhere).
func (a *app) ServePaywall(ctx context.Context, file, place string) error {
	var sales metrics.Sales
	if place != "" {
		a.watch = countSales(&sales)
	}
	conf, h, wall, err := a.openPaywall(ctx, file)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	onMetrics, at, err := listenMetrics(ctx, place)
	if err != nil {
		return err
	}
	if err := wall.CheckChannels(ctx); err != nil {
		return setupFailed(fmt.Errorf("%s: %w", file, err))
	}
	proxy := &paywall.Proxy{Paywall: wall, Command: conf.Command, Stderr: passedOn{os.Stderr}, URL: conf.URL,
		Through: seller.Through(h.rules.Policy.Loopback, h.rules.Network.Proxy),
		Version: a.version, Log: a.log, Listed: conf.DiscoveryList, Origins: conf.Origins,
		Limits: paywall.Limits{Sessions: conf.MaxSessions, Request: int64(conf.MaxRequest),
			BehindProxy: conf.BehindProxy}}
	if len(conf.Command) > 0 {
		proxy.Env, proxy.Sandbox = environ.Child(conf.Env...), a.sandbox(conf.Sandbox, h.rules)
	}
	if err := proxy.Open(ctx); err != nil {
		coded, ok := errors.AsType[*x402.Error](err)
		if !ok {
			coded = x402.Errorf(x402.ServerUnavailable, "%w", err)
		}
		return coded.WithHint("correct %s, or see on stderr why the server did not start", file)
	}
	listener, err := a.claimAndListen(ctx, file, conf, wall, h)
	if err != nil {
		return errors.Join(err, proxy.Close(ctx))
	}
	for _, warning := range wall.Check(ctx) {
		a.log.Warn(warning)
	}
	setCollector()
	var beside sync.WaitGroup
	besideCtx, stop := context.WithCancel(ctx)
	beside.Go(func() { wall.KeepClaiming(besideCtx) })
	defer beside.Wait()
	defer stop()
	if onMetrics != nil {
		beside.Go(func() { a.serveMetrics(besideCtx, onMetrics, &sales, shopFor(proxy, h)) })
		a.log.Info("metrics are served", "at", at)
	}
	if listener == nil {
		return proxy.Stdio(ctx, os.Stdin, os.Stdout)
	}
	a.log.Info("the paywall serves MCP", "url", "http://"+listener.Addr().String()+"/mcp")
	return proxy.HTTP(ctx, listener)
}

// claimAndListen is the last step of a start that can fail: a start that does must not keep another home from
// being paid to its addresses. Over stdio the listener is nil.
func (a *app) claimAndListen(ctx context.Context, file string, conf *paywallfile.File, wall *paywall.Paywall,
	h paywallHome) (listener net.Listener, err error) {
	if conf.Listen != "" {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", conf.Listen)
		if why, ok := errors.AsType[syscall.Errno](err); ok {
			err = why // without Go's words around it
		}
		if err != nil {
			return nil, setupFailed(fmt.Errorf("%s: listen: nothing can be served at %s: %w", file,
				conf.Listen, err))
		}
	}
	if conf.SharedPayTo {
		return listener, nil
	}
	err = a.claimPayees(ctx, wall.Payees(), h.book)
	if err != nil && listener != nil {
		_ = listener.Close()
	}
	return listener, err
}

// passedOn is where a program's stderr goes without the program having the file: that may be the
// terminal on which a person types a passphrase, and who has it can read there.
type passedOn struct{ io.Writer }

// paywallMemoryLimit is the soft memory limit of a paywall process (see debug.SetMemoryLimit): strangers can
// send it large requests. Below it garbage may pile up to paywallGarbage percent of what is in use (see
// debug.SetGCPercent): by Go's own target a sale would take up to a tenth more.
const paywallMemoryLimit, paywallGarbage = 96 << 20, 400

// setCollector sets both, unless the owner did, with GOMEMLIMIT and GOGC.
func setCollector() {
	if debug.SetMemoryLimit(-1) == memoryLimit { // set by Main: GOMEMLIMIT says nothing else
		debug.SetMemoryLimit(paywallMemoryLimit)
	}
	const own = 100 // Go's
	if before := debug.SetGCPercent(paywallGarbage); before != own {
		debug.SetGCPercent(before)
	}
}

func setupFailed(err error) error {
	if _, ok := errors.AsType[*x402.Error](err); ok {
		return err
	}
	return x402.Errorf(x402.SetupFailed, "%w", err).WithHint("see x402-wallet help paywall for the file")
}

// paywallOptions converts the paywall's file into options of the package.
func (a *app) paywallOptions(conf *paywallfile.File, h paywallHome) (paywall.Options, error) {
	rules := h.rules
	own := map[string]string{}
	if h.keys != nil {
		own["solana"], own["eip155"] = h.keys.Addresses()
	}
	nodes := seller.NodeClient(rules.Policy.Loopback, rules.Network.Proxy)
	rpc := rules.Nodes()
	onEVM := permit2.NewPayer(evm.New(evm.Options{RPC: rpc, HTTP: nodes, Now: time.Now,
		Observe: a.parties.Node}), nil)
	onSolana := svm.New(svm.Options{RPC: rpc, HTTP: nodes, Now: time.Now, Observe: a.parties.Node})
	list := conf.Facilitators
	mayRun := func(context.Context) error { return nil } // its owner's, like its command
	if len(list) == 0 {
		list = environ.Facilitators(rules, a.env)
		if h.keys != nil { // else there is no seal, and the paywall's owner is who wrote the rules
			mayRun = a.Guard(h.store, rules, nil).CheckConfig
		}
	}
	o := paywall.Options{
		Facilitators: a.facilitators(rules, list, nodes, mayRun), Store: h.book, Version: conf.Version,
		Dialect: conf.Dialect, VerifyOnly: conf.VerifyOnly, Assets: x402.NewRegistry(rules.Assets),
		SharedPayTo: conf.SharedPayTo, ReceiptTransaction: conf.ReceiptTransaction, Origin: conf.Origin,
		Log: a.log, Observe: a.observer(h.openHome), Traces: traces(rules, true),
		ClaimAfter: conf.ClaimAfter, ClaimAbove: conf.ClaimAbove,
		Received: func(ctx context.Context, e x402.Evidence) (x402.Status, error) {
			if x402.IsSolana(e.Network) {
				return onSolana.Received(ctx, e)
			}
			return onEVM.Received(ctx, e)
		},
	}
	for _, t := range conf.Tools {
		sold := paywall.Tool{Kind: t.Kind, Name: t.Name, Description: t.Description, Upfront: t.Upfront,
			MaxTimeout: t.MaxTimeout, PerKilobyte: t.PerKilobyte, RequireIdentifier: t.RequireIdentifier,
			Access: t.Access}
		if t.Discoverable {
			sold.Discovery = &paywall.Discovery{URL: strings.TrimRight(conf.Origin, "/") + "/mcp",
				Input: example(t.ExampleInput), Output: example(t.ExampleOutput)}
		}
		for _, option := range t.Accepts {
			if option.PayTo == "" {
				option.PayTo = own[x402.Namespace(option.Network)]
			}
			sold.Accepts = append(sold.Accepts, paywall.Option(option))
		}
		o.Tools = append(o.Tools, sold)
	}
	if conf.SignOffers {
		key, err := a.statementKey()
		if err != nil {
			return o, err
		}
		o.StatementKey = key
		a.log.Info("offers and receipts are signed", "key", paywall.KeyID(key))
	}
	return o, nil
}

// example is a JSON text of a paywall's file; nil: there is none.
func example(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}
