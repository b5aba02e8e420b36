package pay

import (
	"context"

	"x402-wallet/history"
)

// Stage is how far a purchase is that has to be paid for.
type Stage string

// The stages that a caller may want to hear of; a purchase taken up again begins with the second.
const (
	StageHeld    Stage = "held"    // the price is known and its money held
	StageFloat   Stage = "float"   // what it takes is moved from the owner's account to the agent's
	StageSent    Stage = "sent"    // the signed payment leaves now
	stageIgnored Stage = "ignored" // by the seller it was shown: the wallet settles
	stageSettled Stage = "settled" // by the wallet, before the seller is asked again
)

type stageKey struct{}

// OnStage has f called at each stage of the purchases made with the context, as net/http/httptrace
// does. f may not block: a payment is under way.
func OnStage(ctx context.Context, f func(Stage, history.Payment)) context.Context {
	return context.WithValue(ctx, stageKey{}, f)
}

type rowsKey struct{}

// OnRows has f called each time that a purchase of a batch made with the context is over, with how many are,
// of how many. f may not block.
func OnRows(ctx context.Context, f func(done, all int)) context.Context {
	return context.WithValue(ctx, rowsKey{}, f)
}

func reachedRow(ctx context.Context, done, all int) {
	if f, ok := ctx.Value(rowsKey{}).(func(done, all int)); ok {
		f(done, all)
	}
}

func reached(ctx context.Context, s Stage, p history.Payment) {
	if f, ok := ctx.Value(stageKey{}).(func(Stage, history.Payment)); ok {
		f(s, p)
	}
}
