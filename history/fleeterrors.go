package history

import (
	"encoding/json"
	"errors"
	"fmt"

	"x402-wallet/budget"
	"x402-wallet/history/postgres"
	"x402-wallet/x402"
)

// What the errors of a fleet's server mean.

// fleetErrorOr is what an error of the wire means; any other is an answer, and stays.
func fleetErrorOr(err error) error {
	var f *postgres.Failure
	if errors.As(err, &f) {
		return fleetError(err)
	}
	return err
}

// fleetError says what an error of the wire or the server means.
func fleetError(err error) error {
	if err == nil {
		return nil
	}
	var known *x402.Error
	if errors.As(err, &known) {
		return err
	}
	var f *postgres.Failure
	if !errors.As(err, &f) {
		return x402.Errorf(x402.LedgerUnavailable, "use the fleet's ledger: %w", err)
	}
	if f.State == "X4O01" {
		var m move
		_ = json.Unmarshal([]byte(f.Detail), &m)
		return m.refusal()
	}
	switch f.Kind {
	case postgres.Defect, postgres.Refused, postgres.Violated:
		return x402.Errorf(x402.Internal, "use the fleet's ledger: %w", err)
	case postgres.Denied:
		return x402.Errorf(x402.LedgerUnavailable,
			"the fleet's ledger does not let this wallet in, or not do that: %w", err).
			WithHint("the owner looks at the login in ledger.url, its password and its role")
	}
	e := x402.Errorf(x402.LedgerUnavailable, "the fleet's ledger does not answer: %w", err)
	e.FixedBy = x402.ByTime
	return e.WithHint("make the same call again; x402-wallet doctor says what is wrong with the server")
}

// tell is err as callers of the money path know it.
func (e *fleet) tell(err error) error {
	if told := e.refused(err); told != nil {
		return told
	}
	return fleetErrorOr(err)
}

// refused is what a function's refusal means; nil: it is none of them.
func (e *fleet) refused(err error) error {
	var f *postgres.Failure
	if !errors.As(err, &f) || f.Kind != postgres.Refused {
		return nil
	}
	switch f.State {
	case "X4M01":
		return moved(f.Said())
	case "X4L01":
		return fmt.Errorf("%w: %s", ErrNotLeaseOwner, f.Said())
	case "X4T01":
		return fmt.Errorf("%w: %s", ErrTransition, f.Said())
	case "X4N01":
		return errNoPayment
	case "X4K01":
		return ErrSignedBefore
	case "X4C01":
		return x402.Errorf(x402.ClockSuspect,
			"this computer's clock and that of the ledger's server are more than %s apart",
			budget.ClockTolerance).
			WithHint("the person sets this computer's clock, or the server's")
	case "X4V01":
		return x402.Errorf(x402.PolicyUnsealed, "%s", f.Said()).
			WithHint("the owner signs the fleet's rules: x402-wallet policy seal --fleet")
	}
	return nil
}

// refusedAs reports whether a function refused by a state.
func refusedAs(err error, state string) bool {
	var f *postgres.Failure
	return errors.As(err, &f) && f.State == state
}

func isViolated(err error, constraint string) bool {
	var f *postgres.Failure
	return errors.As(err, &f) && f.Kind == postgres.Violated && f.Constraint == constraint
}
