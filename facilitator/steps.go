package facilitator

import (
	"context"
	"net/url"

	"x402-wallet/internal/steps"
	"x402-wallet/x402"
)

// begin notes that a facilitator is asked, by its name and host of config.toml.
func begin(ctx context.Context, f *remote, what string) (context.Context, *steps.Span) {
	ctx, step := steps.Begin(ctx, steps.Facilitator)
	if step != nil {
		step.Asked(f.Name, f.host(), what)
	}
	return ctx, step
}

// host is without user, path and query, in which keys are; of a program it is its name.
func (f *remote) host() string {
	if f.Command != nil {
		return f.Command.name()
	}
	at, err := url.Parse(f.URL)
	if err != nil {
		return ""
	}
	return at.Host
}

// stepCodes are why a try to settle failed, as steps say it.
var stepCodes = [...]string{NotSent: string(x402.FacilitatorError), Refused: string(x402.SettlementFailed),
	Unknown: string(x402.OutcomeUnknown), Settled: ""}

// codeIf is that of a facilitator that gave no answer which could be used.
func codeIf(failed bool) string {
	if failed {
		return string(x402.FacilitatorError)
	}
	return ""
}
