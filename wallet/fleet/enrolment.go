package fleet

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"x402-wallet/wallet"
)

// Enrolment lets an agent, or each whose name fits a pattern, pay as a part of a team.
type Enrolment struct {
	Head
	Agent  string            `json:"agent"` // a name, or a pattern of names
	Team   string            `json:"team"`
	Labels map[string]string `json:"labels,omitempty"`
	Number string            `json:"number"` // by which it is told from others
	Made   time.Time         `json:"made"`
	Until  time.Time         `json:"until"`
}

func (e Enrolment) head() Head { return e.Head }

func (e Enrolment) check() error {
	switch {
	case !IsName(e.Agent) && !IsPattern(e.Agent):
		return errors.New("its agent is neither a name nor a pattern like research-*")
	case !IsName(e.Team):
		return errors.New("its team is no name")
	case !numberForm().MatchString(e.Number):
		return errors.New("its number is not 32 hex digits in small letters")
	}
	if err := checkLabels(e.Labels); err != nil {
		return err
	}
	return checkSpan(e.Made, e.Until, MaxLife)
}

// Check says what of an enrolment cannot be; By and Ledger are not looked at.
func (e Enrolment) Check() error { return e.check() }

// NewEnrolment is one from now until a time. by is who signs it.
func (a Anchor) NewEnrolment(by Key, agent, team string, labels map[string]string,
	now, until time.Time) Enrolment {
	head := a.NewHead()
	head.By = by
	return Enrolment{Head: head, Agent: agent, Team: team, Labels: labels, Number: newNumber(),
		Made: seconds(now), Until: seconds(until)}
}

// Sign signs an enrolment.
func (e Enrolment) Sign(by Signer) (Signed, error) { return sign(kindEnrolment, e, by) }

// Covers reports whether an agent's name is one that the enrolment is for.
func (e Enrolment) Covers(agent string) bool { return IsName(agent) && covers(e.Agent, agent) }

// VerifyEnrolment reads an enrolment for this ledger that is valid now, of the owner, or of an orchestrator
// that the bundle names for such agents and such a team. above are the teams that a team is in, itself
// first; nil: only itself. Errors: POLICY_UNSEALED, with a Fault.
func (a Anchor) VerifyEnrolment(signed Signed, b Bundle, above func(team string) []string,
	now time.Time) (Enrolment, error) {
	var others []Key
	for _, o := range b.Orchestrators {
		others = append(others, o.Key)
	}
	e, err := authentic[Enrolment](kindEnrolment, signed, a, others...)
	if err == nil && e.By != a.Owner {
		err = e.isWithin(b.Orchestrators, above)
	}
	if err == nil {
		err = kindEnrolment.inTime(e.Made, e.Until, now)
	}
	if err != nil {
		return Enrolment{}, err
	}
	return e, nil
}

// isWithin refuses what the orchestrator that signed may not enrol.
func (e Enrolment) isWithin(list []Orchestrator, above func(team string) []string) error {
	teams := []string{e.Team}
	if above != nil {
		teams = append(teams, above(e.Team)...)
	}
	for _, o := range list {
		if o.Key != e.By {
			continue
		}
		if !covers(o.Agents, e.Agent) {
			return kindEnrolment.refuse(Outside, "is for %s, and whoever signed it may enrol %s", e.Agent,
				o.Agents)
		}
		if !slices.Contains(teams, o.Team) {
			return kindEnrolment.refuse(Outside, "is for the team %s, and whoever signed it may enrol into "+
				"%s", e.Team, o.Team)
		}
		return nil
	}
	return kindEnrolment.refuse(AnotherOwner, "is signed by a key that may enrol nobody")
}

// OrchestratorKey is the key of a program that enrols agents. It signs enrolments alone, and prints as
// [redacted].
type OrchestratorKey ed25519.PrivateKey

// Format is [redacted] for every verb of package fmt.
func (OrchestratorKey) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }

// MarshalText is [redacted].
func (OrchestratorKey) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// Public is the public key, which the owner's bundle names.
func (k OrchestratorKey) Public() ed25519.PublicKey {
	return ed25519.PrivateKey(k).Public().(ed25519.PublicKey)
}

// Sign implements Signer.
func (k OrchestratorKey) Sign(purpose wallet.Purpose, statement []byte) ([]byte, error) {
	if purpose != wallet.FleetEnrolment {
		return nil, kindEnrolment.refuse(Outside, "is all that an orchestrator's key signs")
	}
	return ed25519.Sign(ed25519.PrivateKey(k), purpose.Message(statement)), nil
}
