package fleet

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// An orchestrator enrols the agents that the owner's newest bundle says, into the team that it says or one
// below; the owner enrols anybody.
func TestWhoMayEnrol(t *testing.T) {
	_, a := golden(t)
	owner, orchestrator := keyOf(t, ownerSeed), keyOf(t, orchestratorSeed)
	stranger := keyOf(t, strings.Repeat("07", 32))
	b := firstBundle(t, a)
	b.Orchestrators = []Orchestrator{{Key(orchestrator.Public()), "research-*", "research"}}
	above := func(team string) []string {
		return map[string][]string{"eu": {"eu", "research", "all"}, "research": {"research", "all"}}[team]
	}
	for _, row := range []struct {
		by          Signer
		agent, team string
		fault       Fault
	}{
		{owner, "research-7", "research", ""},
		{owner, "anna", "sales", ""},
		{owner, "a*", "sales", ""},
		{orchestrator, "research-7", "research", ""},
		{orchestrator, "research-7", "eu", ""},
		{orchestrator, "research-*", "research", ""},
		{orchestrator, "research-eu-*", "eu", ""},
		{orchestrator, "research", "research", Outside},
		{orchestrator, "researcher", "research", Outside},
		{orchestrator, "r*", "research", Outside},
		{orchestrator, "research*", "research", Outside},
		{orchestrator, "anna", "research", Outside},
		{orchestrator, "research-7", "all", Outside},
		{orchestrator, "research-7", "sales", Outside},
		{stranger, "research-7", "research", AnotherOwner},
	} {
		t.Run(fmt.Sprint(row.agent, " ", row.team, " ", row.fault), func(t *testing.T) {
			e := a.NewEnrolment(Key(row.by.Public()), row.agent, row.team, nil, noon, noon.Add(time.Hour))
			signed, err := e.Sign(row.by)
			require.NoError(t, err)
			got, err := a.VerifyEnrolment(signed, b, above, noon)
			if row.fault == "" {
				require.NoError(t, err)
				require.Equal(t, e, got)
				return
			}
			requireFault(t, err, x402.PolicyUnsealed, row.fault)
			require.Zero(t, got)
		})
	}

	// What an orchestrator signed ends with its entry in the bundle.
	e := a.NewEnrolment(Key(orchestrator.Public()), "research-7", "research", nil, noon, noon.Add(time.Hour))
	signed, err := e.Sign(orchestrator)
	require.NoError(t, err)
	_, err = a.VerifyEnrolment(signed, firstBundle(t, a), above, noon)
	requireFault(t, err, x402.PolicyUnsealed, AnotherOwner)
	_, err = a.VerifyEnrolment(signed, b, nil, noon)
	require.NoError(t, err)
}

func TestEnrolmentsThatCannotBe(t *testing.T) {
	_, a := golden(t)
	owner := keyOf(t, ownerSeed)
	many := map[string]string{}
	for i := range maxLabels + 1 {
		many[fmt.Sprint("l", i)] = "x"
	}
	for name, edit := range map[string]func(*Enrolment){
		"everybody":         func(e *Enrolment) { e.Agent = "*" },
		"nobody":            func(e *Enrolment) { e.Agent = "" },
		"a star inside":     func(e *Enrolment) { e.Agent = "a*b" },
		"two stars":         func(e *Enrolment) { e.Agent = "a**" },
		"capitals":          func(e *Enrolment) { e.Agent = "Anna" },
		"a name too long":   func(e *Enrolment) { e.Agent = strings.Repeat("a", 41) },
		"no team":           func(e *Enrolment) { e.Team = "" },
		"a team's pattern":  func(e *Enrolment) { e.Team = "a*" },
		"no number":         func(e *Enrolment) { e.Number = "" },
		"a number in caps":  func(e *Enrolment) { e.Number = strings.ToUpper(e.Number) + "A" },
		"too many labels":   func(e *Enrolment) { e.Labels = many },
		"a label's name":    func(e *Enrolment) { e.Labels = map[string]string{"A b": "x"} },
		"an empty label":    func(e *Enrolment) { e.Labels = map[string]string{"a": ""} },
		"a hidden label":    func(e *Enrolment) { e.Labels = map[string]string{"a": "x\u202ey"} },
		"until too late":    func(e *Enrolment) { e.Until = e.Made.Add(MaxLife + time.Second) },
		"until before then": func(e *Enrolment) { e.Until = e.Made },
	} {
		t.Run(name, func(t *testing.T) {
			e := a.NewEnrolment(Key(owner.Public()), "anna", "sales", nil, noon, noon.Add(time.Hour))
			edit(&e)
			_, err := e.Sign(owner)
			require.ErrorIs(t, err, Unreadable)
		})
	}
}

// An orchestrator's key signs enrolments alone, and does not show.
func TestOrchestratorKey(t *testing.T) {
	_, a := golden(t)
	seed := keyOf(t, orchestratorSeed)
	key := OrchestratorKey(seed)
	e := a.NewEnrolment(Key(key.Public()), "research-7", "research", nil, noon, noon.Add(time.Hour))
	signed, err := e.Sign(key)
	require.NoError(t, err)
	require.True(t, ed25519.Verify(key.Public(), wallet.FleetEnrolment.Message(signed.Statement),
		signed.Signature))
	_, err = key.Sign(wallet.FleetBundle, []byte("{}"))
	require.ErrorIs(t, err, Outside)
	shown, err := json.Marshal(map[string]any{"k": key})
	require.NoError(t, err)
	require.Equal(t, `{"k":"[redacted]"}`, string(shown))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		require.Equal(t, "[redacted]", fmt.Sprintf(verb, key))
	}
}

func TestApprovalsThatCannotBe(t *testing.T) {
	_, a := golden(t)
	owner := keyOf(t, ownerSeed)
	good := Approval{Head: a.NewHead(), ID: "apr_1", Host: "h", Method: "GET", URL: "https://h/",
		Network: "n", Asset: "a", Amount: "1", Price: "0.01", PayTo: "p", Once: NewOnce(noon, time.Minute)}
	_, err := good.Sign(owner)
	require.NoError(t, err)
	for name, edit := range map[string]func(*Approval){
		"no id": func(a *Approval) { a.ID = "" }, "no host": func(a *Approval) { a.Host = "" },
		"no method": func(a *Approval) { a.Method = "" }, "no url": func(a *Approval) { a.URL = "" },
		"no network": func(a *Approval) { a.Network = "" }, "no asset": func(a *Approval) { a.Asset = "" },
		"no amount": func(a *Approval) { a.Amount = "" }, "no price": func(a *Approval) { a.Price = "" },
		"nobody paid":   func(a *Approval) { a.PayTo = "" },
		"a hidden url":  func(a *Approval) { a.URL = "https://h/\u202e" },
		"a long url":    func(a *Approval) { a.URL = strings.Repeat("u", maxURL+1) },
		"a line's end":  func(a *Approval) { a.Host = "h\ni" },
		"a wrong team":  func(a *Approval) { a.Team = "A" },
		"a wrong agent": func(a *Approval) { a.Agent = "a*" },
		"no number":     func(a *Approval) { a.Number = "" },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			edit(&bad)
			_, err := bad.Sign(owner)
			require.ErrorIs(t, err, Unreadable)
		})
	}
	_, err = Session{Head: a.NewHead(), Once: NewOnce(noon, time.Minute)}.Sign(owner)
	require.ErrorIs(t, err, Unreadable, "a session without an id")
	_, err = Session{Head: a.NewHead(), ID: "s", Team: "*", Once: NewOnce(noon, time.Minute)}.Sign(owner)
	require.ErrorIs(t, err, Unreadable, "a session of no team")
}
