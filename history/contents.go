package history

import (
	"context"
	"errors"
	"fmt"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// Contents keeps what payments bought: content.Keeper. Its errors undo the transaction.
type Contents interface {
	// Keep stores what came. It returns what the audit chain says of it, or nil if what is stored is better.
	Keep(t *sqldb.Tx, p Payment, c Content) (*audit.ContentDetail, error)
	// NobodyWaits hears that a payment's content was delivered, or that the payment failed.
	NobodyWaits(t *sqldb.Tx, payment int64) error
	// Refusal is LEDGER_UNAVAILABLE if what is bought now could not be kept.
	Refusal(t *sqldb.Tx) (refusal, err error)
	// Read is Store.Content.
	Read(ctx context.Context, s *Store, id string) (Content, error)
}

// Content is what was bought, or what came instead.
type Content struct {
	Status    int
	Type      string
	Headers   string // of the answer's headers those that its reader needs: a JSON object, or ""
	Truncated bool
	Body      []byte

	// Of what is in the ledger: how long the body is, its SHA-256 in hex, and why it is gone, "quota" or
	// "pruned"; "" where it is there.
	Size    int64
	SHA256  string
	Removed string
}

// ErrContentRemoved says that the bytes of a content are gone. It is an ErrNotFound.
var ErrContentRemoved = fmt.Errorf("its bytes were removed: %w", ErrNotFound)

// Content returns what a payment bought; ErrNotFound when nothing is stored. Where its bytes were
// removed it returns what they were, and ErrContentRemoved.
func (s *Store) Content(ctx context.Context, id string) (Content, error) {
	return s.contents.Read(ctx, s, id)
}

// AnotherContent is LEDGER_CORRUPT: the content of a payment is not what was bought.
func AnotherContent(id string) error {
	return x402.Errorf(x402.LedgerCorrupt, "what is stored as the content of %s is not what was stored", id).
		WithHint("somebody changed the ledger: stop every process of this wallet and look at " +
			"x402-wallet history verify")
}

// noContents is of a Store without Options.Contents: it buys nothing, and loses nothing.
type noContents struct{}

var errNoContents = errors.New("the ledger was opened without a keeper of content (history/content)")

func (noContents) Keep(*sqldb.Tx, Payment, Content) (*audit.ContentDetail, error) {
	return nil, errNoContents
}
func (noContents) NobodyWaits(*sqldb.Tx, int64) error     { return errNoContents }
func (noContents) Refusal(*sqldb.Tx) (refusal, err error) { return nil, errNoContents }
func (noContents) Read(context.Context, *Store, string) (Content, error) {
	return Content{}, errNoContents
}
