package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Kind is what an error means to whoever sent the statement.
type Kind int

// The kinds.
const (
	// Unreachable: no server took the statement, so nothing was done.
	Unreachable Kind = iota + 1
	// Uncertain: the statement was sent and its answer did not come; it may be done, or still run.
	Uncertain
	// Again: the server undid the statement because of others' (40001, 40P01, 55P03).
	Again
	// Refused: a function of the ledger refused it (State).
	Refused
	// Violated: it would break the constraint of that name.
	Violated
	// Denied: this login may not do that.
	Denied
	// Defect: the statement is wrong.
	Defect
)

// Failure is an error of the wire or the server.
type Failure struct {
	Kind       Kind
	Doing      string
	State      string // SQLSTATE; "": the server said nothing
	Constraint string // of Violated
	Detail     string // of Refused: what the function says of it
	Hint       string // which one of several it is about, where the function says so
	err        error
}

var errClosed = errors.New("it is closed")

// Error implements error. What the server says of rows is not passed on.
func (f *Failure) Error() string {
	if f.State != "" {
		return fmt.Sprintf("%s: the server says %s (%s)", f.Doing, f.Said(), f.State)
	}
	return fmt.Sprintf("%s: %v", f.Doing, f.err)
}

// Said is what the server says, or what went wrong before it could.
func (f *Failure) Said() string {
	var e *pgconn.PgError
	if errors.As(f.err, &e) {
		return e.Message
	}
	return f.err.Error()
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.err }

// Is reports whether an error is a Failure of a kind.
func Is(err error, kind Kind) bool {
	var f *Failure
	return errors.As(err, &f) && f.Kind == kind
}

// refusal is the class of the SQLSTATEs by which the ledger's functions refuse.
const refusal = "X4"

// failure says what an error of a statement means that was sent.
func failure(doing string, err error) error {
	if err == nil {
		return nil
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return &Failure{Kind: Uncertain, Doing: doing, err: err}
	}
	f := &Failure{Doing: doing, State: e.Code, Constraint: e.ConstraintName, Hint: e.Hint, Kind: Defect,
		err: err}
	switch {
	case strings.HasPrefix(e.Code, refusal):
		f.Kind, f.Detail = Refused, e.Detail
	case e.Code == "40001", e.Code == "40P01", e.Code == "55P03":
		f.Kind = Again
	case e.Code == "57014": // it took longer than the server lets it
		f.Kind = Again
	case strings.HasPrefix(e.Code, "23"):
		f.Kind = Violated
	case e.Code == "42501", strings.HasPrefix(e.Code, "28"):
		f.Kind = Denied
	case e.Code == "25006", strings.HasPrefix(e.Code, "53"):
		f.Kind = Unreachable // a standby answers, or the server has no room
	case strings.HasPrefix(e.Code, "57P"), strings.HasPrefix(e.Code, "08"):
		f.Kind = Uncertain // the backend was ended, perhaps behind the commit
	}
	return f
}

// connectFailure says what kept a connection from being made: nothing was sent.
func connectFailure(err error) error {
	f := &Failure{Kind: Unreachable, Doing: "connect to the ledger's server", err: err}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		f.State = e.Code
		if strings.HasPrefix(e.Code, "28") || strings.HasPrefix(e.Code, "3D") {
			f.Kind = Denied
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		f.err = context.DeadlineExceeded
	}
	return f
}

// NotNow is what a Check says of a server that may do in a while.
func NotNow(doing string, why error) error {
	return &Failure{Kind: Unreachable, Doing: doing, err: why}
}
