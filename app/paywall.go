package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"x402-wallet/cli"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/paywallfile"
	"x402-wallet/internal/ownfile"
	"x402-wallet/paywall"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
)

// paywallHome is what a paywall stands on: the home, which has neither ledger nor keystore if there is no
// wallet, and the book of sales.
type paywallHome struct {
	openHome
	book *book.Book
}

// Close closes both.
func (h paywallHome) Close() error { return errors.Join(h.book.Close(), h.openHome.Close()) }

// openPaywallHome opens the home that a paywall runs on, and makes its book of sales if there is none. If the
// paywall's file sets every pay_to, no wallet is needed: the home then holds only the book, and a config.toml
// if the owner wrote one (nodes, facilitators, assets).
func (a *app) openPaywallHome(ctx context.Context, conf *paywallfile.File) (h paywallHome, err error) {
	h.openHome, err = a.open(ctx)
	if !conf.NeedsWallet() && x402.HasCode(err, x402.WalletNotFound) {
		h.openHome, err = a.openWithoutWallet()
	}
	if err != nil {
		return h, err
	}
	h.book, err = book.Make(ctx, a.bookAt(h.rules))
	if err != nil {
		_ = h.openHome.Close()
	}
	return h, err
}

// openWithoutWallet makes a home if there is none, and reads its rules, which nobody sealed.
func (a *app) openWithoutWallet() (h openHome, err error) {
	h.rules, err = a.rules()
	if x402.HasCode(err, x402.PolicyUnsealed) { // there is none
		h.rules, err = config.Parse(nil)
	}
	if err != nil {
		return h, err
	}
	if err := config.MakeHome(a.home); err != nil {
		return h, x402.Errorf(x402.SetupFailed, "%w", err)
	}
	h.spans = a.spans(h.rules)
	return h, nil
}

// bookAt is where the rules keep the book of sales: in sales.db, or beside the ledger in PostgreSQL.
func (a *app) bookAt(rules *config.Config) book.Place {
	if rules.Ledger.URL == "" {
		return book.Place{Home: a.home}
	}
	return book.Place{Server: a.postgres(rules)}
}

// OpenBook opens the book of sales; book.ErrNone if nothing was sold yet.
func (a *app) OpenBook(ctx context.Context) (*book.Book, error) {
	return book.Open(ctx, book.Place{Home: a.home, Server: a.ledgerServer()})
}

// openPaywall makes the paywall that a file describes, on its home. Who gets it closes the home.
func (a *app) openPaywall(ctx context.Context, file string) (conf *paywallfile.File, h paywallHome,
	wall *paywall.Paywall, err error) {
	conf, err = paywallfile.Load(file)
	if err != nil {
		return nil, h, nil, setupFailed(err)
	}
	h, err = a.openPaywallHome(ctx, conf)
	if err != nil {
		return nil, h, nil, err
	}
	options, err := a.paywallOptions(conf, h)
	if err == nil {
		wall, err = paywall.New(options)
		if err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
	}
	if err != nil {
		_ = h.Close()
		return nil, h, nil, setupFailed(err)
	}
	return conf, h, wall, nil
}

// ClaimPaywall claims what was charged by batch-settlement, as the paywall itself does.
func (a *app) ClaimPaywall(ctx context.Context, file string) (done []cli.Claimed, err error) {
	_, h, wall, err := a.openPaywall(ctx, file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = h.Close() }()
	claims, err := wall.Claim(ctx)
	assets := x402.NewRegistry(h.rules.Assets)
	for _, c := range claims {
		asset, _ := assets.Asset(c.Network, c.Asset)
		done = append(done, cli.Claimed{Network: c.Network, PayTo: c.PayTo, Asset: c.Asset,
			Symbol: asset.Symbol, Channels: c.Channels, Amount: c.Amount.String(),
			Price: asset.Dollars(c.Amount).Price(), Transactions: c.Transactions})
	}
	if err != nil {
		return done, x402.Errorf(x402.FacilitatorError, "not all could be claimed: %w", err).
			WithHint("nothing is lost: the paywall goes on trying, and this command can be repeated")
	}
	return done, nil
}

// claim is the content of a file that records which home holds the book of sales of a payee address, and the
// id of the book if that is in PostgreSQL. There is one file per address and network, in the user's
// configuration directory, which all paywalls of the user share.
type claim struct {
	Network string `json:"network"`
	PayTo   string `json:"payTo"`
	Home    string `json:"home"`
	Book    string `json:"book,omitempty"`
}

// claimPayees makes sure that all paywalls of this user that are paid to the same address share one book of
// sales: a book runs each payment once, so two books would run it twice. The first home to claim an address
// keeps it. Homes with one book in PostgreSQL share their sales. Other users, machines and containers are not
// visible here; those are up to the owner.
func (a *app) claimPayees(ctx context.Context, payees []paywall.Payee, sold *book.Book) error {
	id, err := sold.SharedID(ctx)
	if err != nil {
		return err
	}
	user, err := os.UserConfigDir()
	if err != nil {
		return x402.Errorf(x402.SetupFailed, "whether another paywall of this user is paid to the same "+
			"address cannot be seen: the environment names no home directory").
			WithHint("set HOME; or, if you know that no other sells for it, or that one does, " +
				"shared_pay_to = true")
	}
	dir := filepath.Join(user, "x402-wallet", "payees")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return x402.Errorf(x402.SetupFailed, "note who is paid: %w", err)
	}
	// All are read before the first is written: a refused start leaves no claim that refuses the right one.
	for _, claims := range []func(string, claim) error{a.checkClaim, a.claimPayee} {
		for _, p := range payees {
			sum := sha256.Sum256([]byte(p.Network + " " + p.Address))
			path := filepath.Join(dir, hex.EncodeToString(sum[:16])+".json")
			err := claims(path, claim{Network: p.Network, PayTo: p.Address, Home: a.home, Book: id})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) claimPayee(path string, own claim) error {
	text, err := json.Marshal(own)
	if err != nil {
		return err
	}
	err = createExclusive(path, text)
	if errors.Is(err, fs.ErrExist) {
		return a.checkClaim(path, own)
	}
	return err
}

// checkClaim refuses an address that another book has claimed.
func (a *app) checkClaim(path string, own claim) error {
	const maxClaim = 16 << 10
	text, _, err := ownfile.Read(path, maxClaim)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var first claim
	if err == nil {
		err = json.Unmarshal(text, &first)
	}
	if err != nil {
		return x402.Errorf(x402.SetupFailed, "read who is paid: %w", err).WithHint("remove %s", path)
	}
	if (own.Book != "" && own.Book == first.Book) || isSameBook(first.Home, a.home) {
		return nil
	}
	return x402.Errorf(x402.SetupFailed, "%s on %s is sold for with another book, that of %s: each book "+
		"runs a payment once, so two would run it twice", own.PayTo, x402.Title(own.Network), first.Home).
		WithHint("start it with X402_WALLET_HOME=%s, or be paid to another address. If that home is "+
			"gone, remove %s. shared_pay_to = true starts it all the same", first.Home, path)
}

// isSameBook reports whether two paths lead to the same home, or to homes with the same sales.db.
func isSameBook(one, other string) bool {
	if one == other {
		return true
	}
	a, errA := os.Stat(filepath.Join(one, book.FileName))
	b, errB := os.Stat(filepath.Join(other, book.FileName))
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// createExclusive creates a file atomically with its content. It returns fs.ErrExist if the file exists.
func createExclusive(path string, text []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return x402.Errorf(x402.SetupFailed, "write %s: %w", path, err)
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	_, err = temp.Write(text)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err == nil {
		err = os.Link(temp.Name(), path)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		err = x402.Errorf(x402.SetupFailed, "write %s: %w", path, err)
	}
	return err
}
