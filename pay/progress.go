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

func reached(ctx context.Context, s Stage, p history.Payment) {
	if f, ok := ctx.Value(stageKey{}).(func(Stage, history.Payment)); ok {
		f(s, p)
	}
}
