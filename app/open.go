package app

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/svm"
	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/asking"
	"x402-wallet/history/content"
	"x402-wallet/history/locks"
	"x402-wallet/history/verify"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/hooks"
	"x402-wallet/internal/notify"
	"x402-wallet/internal/otlp"
	"x402-wallet/pay"
	"x402-wallet/scheme/batch"
	"x402-wallet/scheme/nuwa"
	"x402-wallet/scheme/permit2"
	"x402-wallet/seller"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/wallet/agent"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

// OpenWallet joins the parts of a wallet that exists, under the owner's rules as they are, to pay from the
// account that the context's agent pays from by them. It unlocks nothing and asks no node. first and last
// are where a passphrase may come from before and after the sources that need no person; nil: nowhere.
// Errors have codes: WALLET_NOT_FOUND, POLICY_UNSEALED, LEDGER_CORRUPT, …
func (a *app) OpenWallet(ctx context.Context, first, last wallet.Passphrase) (*tools.Wallet, error) {
	h, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	keys, rules, store := h.keys, h.rules, h.store
	nodes := seller.NodeClient(rules.Policy.Loopback, rules.Network.Proxy)
	onRooch := nuwa.NewNodes(rules.Nodes(), nodes, a.parties.Node)
	assets := x402.NewRegistry(slices.Concat(onRooch.Assets(), rules.Assets))
	signed := a.signedUnder(rules, assets).For(pay.AgentFrom(ctx))
	settings := settingsOf(rules, signed.Budget.Account)
	account, err := keys.AccountNamed(signed.Budget.Account)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	isNone := func(s wallet.Passphrase) bool { return s == nil }
	alone := slices.DeleteFunc(slices.Concat([]wallet.Passphrase{first}, a.sources(rules, keys)), isNone)
	keys.Sources = slices.DeleteFunc(append(slices.Clone(alone), last), isNone)

	remote := a.remote(rules, keys, first)
	local := a.Guard(store, rules, keys)
	guard := client.Guard{Local: closingGuard{local, a}, Remote: remote,
		Recorder: a.recorder(local, signed, keys)}
	allKeys := toolKeys{Wallet: keys, account: account, remote: remote}
	if store.Shared() && (len(alone) > 0 || !allKeys.Locked()) && a.takesOver(ctx, local, guard) {
		return a.reopen(ctx, h, first, last)
	}
	onEVM := client.Signer{Local: guard.Recorder, Remote: remote}
	onSolana := onEVM
	onSolana.Account, onEVM.Account = account.Addresses()
	settlers := a.facilitators(rules, environ.Facilitators(rules, a.env), nodes, local.CheckConfig)
	on := a.chains(rules, settings, onEVM, onSolana, nodes)
	sellers := seller.New(seller.Options{Loopback: rules.Policy.Loopback, Proxy: rules.Network.Proxy,
		OtherProxy: a.env.OtherProxy, Servers: a.servers(rules),
		Version: a.version, Log: a.log, Agent: pay.AgentFrom})
	book := locks.New(store)
	deposits := a.deposits(rules, settings, assets)
	deposits.Chain, deposits.Ledger, deposits.Guard, deposits.Sellers = on.contract, book, guard, sellers
	ways := a.ways(parts{chains: on, rules: rules, settings: settings, knows: settlers.HasSigner,
		guard: local, onEVM: onEVM, deposits: deposits})
	bind(&guard.Recorder.Rules, rules, ways)
	engine := &pay.Engine{
		Rules: signed.Budget, Policy: policy(rules), Assets: assets,
		Schemes: map[pay.SchemeKey]pay.Scheme{}, Statuses: onRooch.Statuses(),
		Owners: owners(on.evm), Floats: floats{Exact: on.evm},
		SignIns:   client.SignIns{EVM: onEVM, Solana: onSolana},
		Transport: sellers, Settler: settlers, Store: store, Asker: asking.Asker{Store: store}, Guard: guard,
		Now: time.Now, Log: a.log, Observe: a.observer(h), Traces: traces(rules, false),
	}
	deposits.Engine = engine
	delegation := a.delegation(rules, assets, keys, nodes)
	engine.Delegated, guard.Recorder.Rules.Delegated = delegation.Limit, delegation.OfPayment
	register(engine, rules, ways)
	if h.hooks != nil {
		engine.Hooks = h.hooks
	}
	// Not with what may ask a person, nor with what this command was given, which a descriptor has but once:
	// the payment itself has to say that it was wrong.
	if first == nil && len(rules.Keystore.PassphraseCommand) == 0 && !rules.Keystore.Keyring {
		engine.UnlockAhead = allKeys.unlockAhead(alone)
	}
	channels := a.channels(h, book, onRooch, sellers, engine)
	if channels != nil {
		engine.Deferred = channels
	}
	return &tools.Wallet{
		Engine: engine, Store: store, Content: h.content, Alerts: h.alerts, Keys: allKeys,
		EVM: on.evm, Permits: on.permits, Solana: on.solana, Facilitators: settlers, Servers: sellers,
		Channels: channels, VerifySeals: sealsVerifier(store, local, remote), Passkeys: passkeys(rules),
		ByPasskey:     client.ByPasskey{Local: a.approver(local, passkeysOf(local, rules)), Remote: remote},
		UnlocksItself: len(alone) > 0, Stale: func() bool { return !rules.Same(a.home) },
		OpenFor: func(ctx context.Context, agent string) (*tools.Wallet, error) {
			return a.OpenWallet(pay.WithAgent(ctx, agent), first, last)
		},
		Close:    func() error { return errors.Join(sellers.Close(), book.CloseLocks(), h.Close()) },
		Accounts: accounts(keys, rules), Networks: networksInOrder(rules), Unnamed: unnamed(rules),
		TokenAccounts: settings.tokenAccounts, Mounts: mounts(rules), AgentLabels: agentLabels(rules),
		Subscriptions: subscriptions(rules), Deposits: deposits,
		Warnings: slices.Concat(keys.Warnings, rules.Warnings, environ.Ignored(a.env, rules)),
	}, nil
}

// sealsVerifier checks the whole ledger in this process, or where the key is unlocked.
func sealsVerifier(store *history.Store, local *seal.Guard, remote *client.Client,
) func(context.Context, bool) error {
	return func(ctx context.Context, own bool) error {
		whole := func(ctx context.Context) error { return verify.Owned(ctx, store, local) }
		if own {
			return whole(ctx)
		}
		return remote.Verify(ctx, whole)
	}
}

// reopen is OpenWallet once more, by rules that are newer now.
func (a *app) reopen(ctx context.Context, h openHome, first, last wallet.Passphrase) (*tools.Wallet, error) {
	if err := h.Close(); err != nil {
		return nil, err
	}
	return a.OpenWallet(ctx, first, last)
}

func accounts(keys *wallet.Wallet, rules *config.Config) (list []tools.Account) {
	for _, a := range keys.Accounts() {
		if rules.HasAccount(a.Name) {
			list = append(list, tools.Account{Name: a.Name, Solana: a.Solana, EVM: a.EVM})
		}
	}
	return list
}

type chains struct {
	evm      *evm.Exact
	permits  *permit2.Payer
	contract *batch.Contract // of channels
	solana   *svm.Exact
}

func (a *app) chains(rules *config.Config, of networkSettings, evmSigner, solanaSigner onchain.Signer,
	nodes *http.Client) (on chains) {
	on.evm = evm.New(evm.Options{
		Signer: evmSigner, RPC: rules.Nodes(), Vaults: of.vaults, Allowances: of.allowances,
		HTTP: nodes, Rand: rand.Reader, Now: time.Now,
		Observe: a.parties.Node,
	})
	on.solana = svm.New(svm.Options{
		Signer: solanaSigner, RPC: rules.Nodes(), TokenAccounts: of.tokenAccounts, HTTP: nodes,
		Rand: rand.Reader, Now: time.Now, Observe: a.parties.Node,
	})
	on.addContracts(rules, of)
	return on
}

// deposits are the channels with a deposit by the owner's rules, still without their chain and ledger.
func (a *app) deposits(rules *config.Config, of networkSettings, assets *x402.Registry) *batch.Channels {
	return &batch.Channels{ByPermit2: permit2.Exact{ApprovalGas: of.approvalGas},
		MayPermit: rules.Policy.Has(x402.Permit2), Assets: assets, MaxDeposit: rules.Policy.ChannelDeposit,
		Deadline: rules.Policy.Deadline, Now: time.Now, Log: a.log}
}

// delegation reads what is delegated to the wallet's own account, whose payments ever are made.
func (a *app) delegation(rules *config.Config, assets *x402.Registry, keys *wallet.Wallet,
	nodes *http.Client) pay.Delegation {
	var onSolana, onEVM client.Signer // for their addresses alone
	onSolana.Account, onEVM.Account = keys.Addresses()
	of := settingsOf(rules, "")
	on := a.chains(rules, of, onEVM, onSolana, nodes)
	return pay.Delegation{Networks: networksInOrder(rules), Assets: assets, Log: a.log,
		IsNamed: func(network string) bool {
			_, takesFloat := of.allowances[network]
			return takesFloat || of.tokenAccounts[network] != ""
		},
		Funds: func(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
			if x402.IsSolana(network) {
				return on.solana.Funds(ctx, network, asset)
			}
			return on.evm.Funds(ctx, network, asset)
		}}
}

// remote is the unlock agent, whose turn comes after the descriptor, the file and the command: each of
// those, where it is set up, either unlocks the wallet itself or fails.
func (a *app) remote(rules *config.Config, keys *wallet.Wallet, first wallet.Passphrase) *client.Client {
	earlier := first != nil || a.env.PassphraseFile != "" || rules.Keystore.PassphraseFile != "" ||
		len(rules.Keystore.PassphraseCommand) > 0
	return &client.Client{Home: a.home, Before: func() bool { return !earlier && keys.Locked() },
		SigningTime: signingTime(rules)}
}

type toolKeys struct {
	*wallet.Wallet
	account *wallet.Account
	remote  *client.Client
}

// Addresses are those of the account that pays.
func (k toolKeys) Addresses() (solana, evm string) { return k.account.Addresses() }

// Locked: a wallet whose unlock agent is running signs without asking anybody.
func (k toolKeys) Locked() bool {
	return k.Wallet.Locked() && (!k.remote.Before() || k.remote.Status(context.Background()) != nil)
}

func (k toolKeys) Unlock(ctx context.Context, passphrase []byte) error {
	return k.Wallet.Unlock(ctx, typed(passphrase))
}

// unlockAhead returns what unlocks the wallet beside a call. After it failed it does nothing: each wrong
// passphrase makes the next one wait.
func (k toolKeys) unlockAhead(sources []wallet.Passphrase) func() {
	if len(sources) == 0 {
		return nil
	}
	var failed atomic.Bool
	return func() {
		if failed.Load() || !k.Wallet.Locked() {
			return
		}
		go func() {
			if k.Locked() && k.Wallet.Unlock(context.Background(), sources...) != nil {
				failed.Store(true)
			}
		}()
	}
}

// typed is a passphrase that a person typed; who typed it wipes it.
func typed(passphrase []byte) wallet.Passphrase {
	return func(context.Context) ([]byte, error) { return bytes.Clone(passphrase), nil }
}

// openHome is what every part of the program stands on: the keystore, locked, the owner's rules as
// they are, and the ledger. A paywall's may have neither keystore nor ledger (openWithoutWallet).
type openHome struct {
	keys    *wallet.Wallet
	rules   *config.Config
	store   *history.Store
	content content.Keeper // of the store
	alerts  alerts.Writer
	// tells the owner of what waits for them; nil: by nothing
	notifier *notify.Notifier
	hooks    *hooks.Hooks   // the owner's programs; nil: there are none
	spans    *otlp.Exporter // to the owner's collector; nil: there is none
}

func (a *app) open(ctx context.Context) (h openHome, err error) {
	a.closeHome(ctx)
	h.keys, err = wallet.Open(a.home)
	if err != nil {
		return h, err
	}
	h.rules, err = a.rules()
	if err == nil {
		h.keys.Idle = h.rules.Keystore.Idle
		h.spans = a.spans(h.rules)
		h.notifier = a.notifier(h.rules)
		if h.notifier != nil {
			h.alerts.Wake = h.notifier.Wake
		}
		h.content.Quota = int64(h.rules.Policy.ContentQuota)
		h.store, err = a.openLedger(ctx, h.content, h.alerts)
	}
	if err == nil {
		h.keys.Signers, err = a.sealedSigners(ctx, h)
	}
	if err != nil {
		if h.store != nil {
			_ = h.store.Close()
		}
		_ = h.keys.Close()
		return h, err
	}
	a.beginTelling(&h)
	return h, nil
}

// beginTelling lets what the owner is told go out, as long as the rules that say to whom are theirs.
func (a *app) beginTelling(h *openHome) {
	sealed := a.Guard(h.store, h.rules, nil).CheckConfig
	h.hooks = a.hooks(h.rules, h.store, sealed)
	if h.hooks != nil {
		h.hooks.Begin()
	}
	if h.notifier != nil {
		h.notifier.Store, h.notifier.Sealed = h.store, sealed
		h.notifier.Begin()
	}
	if h.spans != nil {
		h.spans.Sealed = sealed
	}
}

// Close closes ledger and keystore. What the owner and their collector are being told has a moment to get
// through, and the ledger is closed after that.
func (h openHome) Close() (err error) {
	if h.spans != nil {
		h.spans.Close()
	}
	var tellers []func(then func())
	if h.notifier != nil {
		tellers = append(tellers, h.notifier.Close)
	}
	if h.hooks != nil {
		tellers = append(tellers, h.hooks.Close)
	}
	if len(tellers) == 0 && h.store != nil {
		err = h.store.Close()
	}
	left := new(atomic.Int32)
	left.Store(int32(len(tellers))) //nolint:gosec // two at most
	for _, end := range tellers {
		end(func() {
			if left.Add(-1) == 0 {
				_ = h.store.Close()
			}
		})
	}
	if h.keys != nil {
		err = errors.Join(err, h.keys.Close())
	}
	return err
}

func (a *app) OpenLedger(ctx context.Context) (*history.Store, error) {
	return a.openLedger(ctx, content.Keeper{}, alerts.Writer{})
}

// OpenKeys opens the keystore, still locked. What unlocks it is what needs no person: those of
// sources that rules name.
func (a *app) OpenKeys(rules *config.Config) (*wallet.Wallet, error) {
	keys, err := wallet.Open(a.home)
	if err != nil {
		return nil, err
	}
	keys.Sources, keys.Signers = a.sources(rules, keys), a.SignersByChain(rules)
	return keys, nil
}

// Guard makes what stands between the ledger and whoever else can write to it. rules may be nil
// where only rows are sealed or checked; key may be nil where no seal is made or checked.
func (a *app) Guard(store *history.Store, rules seal.Rules, key seal.Key) *seal.Guard {
	return &seal.Guard{Home: a.home, Rules: rules, Store: store, Key: key, Checkpoints: a.checkpoints}
}

func (a *app) recorder(guard *seal.Guard, rules agent.Rules, keys *wallet.Wallet) *agent.Recorder {
	return &agent.Recorder{Store: guard.Store, Guard: guard, Rules: rules, Now: time.Now, Tally: a.tally,
		Account: func(name string) (*wallet.Account, error) { return accountOf(keys, name) }}
}

func accountOf(keys *wallet.Wallet, name string) (*wallet.Account, error) {
	account, err := keys.AccountNamed(name)
	if err != nil {
		return nil, x402.Errorf(x402.WalletLocked, "the account %s was added since the wallet was unlocked",
			name).
			WithHint("the owner runs x402-wallet lock, then x402-wallet unlock")
	}
	return account, nil
}

// signedUnder is what who signs has to know of the owner's rules.
func (a *app) signedUnder(rules *config.Config, assets *x402.Registry) agent.Rules {
	return agent.Rules{
		Budget: budgetRules(rules), Assets: assets, MaxTimeout: rules.Policy.MaxTimeout,
	}
}

// ApproveTyped approves a payment exactly as it was shown, with the passphrase that its owner
// typed, which stays the caller's to wipe. A wrong one is INVALID_PASSPHRASE.
func (a *app) ApproveTyped(ctx context.Context, store *history.Store, shown history.Approval,
	passphrase []byte) error {
	keys, err := wallet.Open(a.home)
	if err != nil {
		return err
	}
	defer func() { _ = keys.Close() }()
	if err := keys.Unlock(ctx, typed(passphrase)); err != nil {
		return err
	}
	_, err = a.Guard(store, nil, keys).Approve(ctx, shown, "owner")
	return err
}
