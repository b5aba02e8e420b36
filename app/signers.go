package app

import (
	"context"
	"reflect"
	"time"

	"x402-wallet/internal/child"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/seller"
	"x402-wallet/wallet"
	"x402-wallet/wallet/signer"
	"x402-wallet/x402"
)

// Signer is one that keeps a key itself. said hears what a command writes to its standard error; nil: nobody
// does.
func (a *app) Signer(name string, s config.Signer, rules *config.Config,
	said func(text string)) *signer.Signer {
	return signer.New(name, s, signer.Options{
		HTTP: seller.NodeClient(rules.Policy.Loopback, rules.Network.Proxy), Secret: config.ReadSecretFile,
		Now:  time.Now,
		Said: said,
		Program: func(argv, env []string, sandbox *bool) child.Program {
			return child.Program{Argv: argv, Env: environ.Child(env...), Sandbox: a.sandbox(sandbox, rules)}
		},
	})
}

func (a *app) SignersByChain(rules *config.Config) map[string]wallet.Signer {
	list := map[string]wallet.Signer{}
	for name, s := range rules.Signers {
		list[s.Chain] = a.Signer(name, s, rules, nil)
	}
	return list
}

// sealedSigners are those of rules that are as the owner sealed them, or tighter. Of other rules nothing is
// paid, and none of their signers counts: their addresses would be shown to whoever sends money to the
// wallet.
func (a *app) sealedSigners(ctx context.Context, h openHome) (map[string]wallet.Signer, error) {
	if len(h.rules.Signers) == 0 {
		return nil, nil
	}
	err := a.Guard(h.store, h.rules, nil).CheckConfig(ctx)
	if x402.HasCode(err, x402.PolicyUnsealed) {
		a.log.Warn("the rules are not sealed: their signers count for nothing until they are")
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return a.SignersByChain(h.rules), nil
}

// lookAtSigners says in the log which signers could not sign now. Nobody waits for it.
func (a *app) lookAtSigners(ctx context.Context, signers map[string]wallet.Signer) {
	for _, s := range signers {
		go func() {
			limited, cancel := context.WithTimeout(ctx, lookTime)
			defer cancel()
			if err := s.Check(limited); err != nil && ctx.Err() == nil {
				name, _ := s.Account()
				a.log.Warn("a signer could not sign now", "signer", name, "err", x402.AsError(err).Message)
			}
		}()
	}
}

const lookTime = 15 * time.Second

// signingTime is the longest that a signature may take under the rules, beside what the keystore takes
// itself.
func signingTime(rules *config.Config) (most time.Duration) {
	for _, s := range rules.Signers {
		most = max(most, 2*s.Timeout) // a permit goes with an approval
	}
	return most
}

// sameSigners refuses rules that name other signers than those an unlock agent began with: it would sign out
// of another account than its callers pay from.
func sameSigners(began, now *config.Config) error {
	if reflect.DeepEqual(began.Signers, now.Signers) {
		return nil
	}
	return x402.Errorf(x402.WalletLocked, "the rules name other signers than when the wallet was unlocked").
		WithHint("the owner runs x402-wallet lock, then x402-wallet unlock")
}
