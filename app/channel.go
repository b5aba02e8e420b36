package app

import (
	"context"

	"time"

	"x402-wallet/history/locks"
	"x402-wallet/scheme/nuwa"
	walletnuwa "x402-wallet/wallet/nuwa"

	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// channels joins what payment channels need; nil where the owner set none up: a node of Rooch and a
// DID; and for another account than the wallet's own.
func (a *app) channels(h openHome, book *locks.Book, nodes nuwa.Nodes, sellers *seller.Client,
	engine *pay.Engine) *nuwa.Manager {
	if len(nodes) == 0 || engine.Rules.Account != "" {
		return nil
	}
	c := h.rules
	servers := map[string]nuwa.Server{}
	for name, s := range c.Servers {
		endpoint, err := sellers.Endpoint(name)
		if err == nil && (s.Channel == nil || *s.Channel) {
			servers[name] = nuwa.Server{Endpoint: endpoint, Service: s.Service, Detect: s.Channel == nil}
		}
	}
	return &nuwa.Manager{
		DID: c.Channel.DID, Servers: servers, Nodes: nodes, DepositCap: c.Channel.DepositCap,
		Keys:      channelKeys{walletnuwa.Keys{Account: &h.keys.Account}},
		Transport: sellers, Engine: engine, Store: book,
		Guard: engine.Guard, Now: time.Now, Log: a.log,
	}
}

// lockedHint says more of a locked wallet: while an unlock agent runs its owner may think that it
// is not.
func lockedHint(err error) error {
	if x402.HasCode(err, x402.WalletLocked) {
		err = x402.AsError(err).
			WithHint("payment channels are signed by the wallet itself and not by the unlock agent: set " +
				"up a passphrase file, command or keyring, or answer the wallet's page")
	}
	return err
}

// channelKeys is the wallet as channels may know it. The unlock agent signs for none: it cannot
// tell what a SubRAV is for.
type channelKeys struct{ walletnuwa.Keys }

func (k channelKeys) Public() string {
	solana, _ := k.Addresses()
	return walletnuwa.ChannelKey(solana)
}

func (k channelKeys) Owns(q nuwa.Key) bool { return k.OwnsChannelKey(q.Type, q.Multibase) }

func (channelKeys) Verify(k nuwa.Key, message, signature []byte) bool {
	return walletnuwa.VerifyChannelKey(k.Type, k.Multibase, message, signature)
}

func (k channelKeys) SignSubRAV(ctx context.Context, key nuwa.Key, message []byte,
	meant nuwa.SubRAV) ([]byte, error) {
	signature, err := k.Keys.SignSubRAV(ctx, key.Type, message, walletnuwa.SubRAV{
		ChainID: meant.ChainID, Channel: meant.Channel, Epoch: meant.Epoch, Fragment: meant.Fragment,
		Amount: meant.Amount.Bytes32(), Nonce: meant.Nonce,
	})
	return signature[:], lockedHint(err)
}

func (k channelKeys) SignAuth(ctx context.Context, key nuwa.Key, message []byte) ([]byte, error) {
	signature, err := k.SignDIDAuth(ctx, key.Type, message)
	return signature[:], lockedHint(err)
}

func (k channelKeys) SignTransaction(ctx context.Context, key nuwa.Key, message []byte,
	meant nuwa.Transaction) ([]byte, error) {
	signature, err := k.SignRooch(ctx, key.Type, message, walletnuwa.RoochCall{
		Sender: meant.Sender, Sequence: meant.Sequence, ChainID: meant.ChainID, MaxGas: meant.MaxGas,
		Function: meant.Function, Args: meant.Args,
	})
	return signature[:], lockedHint(err)
}
