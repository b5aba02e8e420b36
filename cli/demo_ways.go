package cli

import (
	"context"
	"errors"
	"fmt"

	"x402-wallet/pay"
)

// The scenes of `demo --all`: a paid call in each of the other ways. They come after the story, in the same
// session, so that its figures are the same with them and without.

// The paths that are sold in other ways.
const demoSignIn = "/archive"

func (d *demo) otherWays() []func(context.Context) error {
	return []func(context.Context) error{d.signedIn}
}

func (d *demo) signedIn(ctx context.Context) error {
	d.scene("Bought once, fetched again: the agent signs in instead of paying (sign-in-with-x)")
	settled := len(d.world.Settlements())
	got, err := d.buy(ctx, demoSignIn, map[string]any{"maxAmount": "$0.01"}, pay.StatusPaid)
	if err != nil {
		return err
	}
	d.showPaid(got)
	if err := errors.Join(d.settlements(settled+1), d.receipt(got)); err != nil {
		return err
	}
	again, err := d.buy(ctx, demoSignIn, map[string]any{"maxAmount": "$0.01"}, pay.StatusFree)
	if err != nil {
		return err
	}
	d.line("next", "%s", again.Next.Why)
	d.line("why", "the wallet signed a text that names the website, its own account and a number for once; "+
		"the owner's rules say sign_in = \"allow\"")
	if d.world.SignIns() != 1 {
		return fmt.Errorf("the website let in %d instead of 1", d.world.SignIns())
	}
	return d.settlements(settled + 1)
}
