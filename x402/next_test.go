package x402

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A sentence begins with a capital letter, and a name with what it begins with.
func TestASentenceChangesNoName(t *testing.T) {
	for message, want := range map[string]string{
		"the wallet is locked":      "The wallet is locked.",
		"bad.toml: line 2":          "bad.toml: line 2.",
		"x402-wallet is not there.": "x402-wallet is not there.",
		"read: no":                  "Read: no.", "": "",
	} {
		require.Equal(t, want, Sentence(message))
	}
}

// Every code has a step of its own, and what a person has to do has a line to type and a sentence to read.
func TestEveryCodeHasANextStep(t *testing.T) {
	for code, of := range codes {
		next := Errorf(code, "it did not work").NextStep()
		require.Contains(t, []Step{Repeat, Change, AskPerson, Wait, GiveUp}, next.Do, code)
		if next.Do == AskPerson {
			require.Contains(t, next.Command, "x402-wallet ", code)
			require.NotEmpty(t, next.Say, code)
		}
		if of.fixedBy == ByPerson {
			require.Contains(t, []Step{AskPerson, GiveUp}, next.Do, code)
		}
		if next.Do == GiveUp {
			require.NotEmpty(t, next.Why, code)
		}
		other := Errorf(code, "it did not work")
		other.FixedBy = ByPerson
		next = other.NextStep()
		if code != ApprovalDeclined {
			require.Equal(t, AskPerson, next.Do, code)
			require.NotEmpty(t, next.Command, code)
		}
	}
	for _, code := range []Code{NoRequirements, ApprovalDeclined} {
		require.Equal(t, GiveUp, Errorf(code, "no").NextStep().Do, "%s: repeating is of no use", code)
	}
}

func TestNextStep(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 1, time.FixedZone("CET", 3600))
	e := Errorf(RateLimited, "too fast").WaitUntil(at, "the oldest payment is a minute old then")
	require.Equal(t, Next{Do: Wait, Why: "the oldest payment is a minute old then",
		At: "2026-11-23T11:00:01Z"}, e.NextStep(), "not a nanosecond too early")
	e.Unsafe = true
	require.Equal(t, Change, e.NextStep().Do)

	e = Errorf(PolicyDenied, "the owner does not allow\nexample.com").WithCommand(
		Command("policy", "allow", "a;reboot'$(x)\n.example"), "")
	require.Equal(t, Next{Do: AskPerson, Command: `x402-wallet policy allow 'a;reboot'\''$(x)\n.example'`,
		Say: "The owner does not allow example.com."}, e.NextStep())
	require.Equal(t, "x402-wallet x --file /a/b-1.json '~y' ''", Command("x", "--file", "/a/b-1.json", "~y",
		""))
}
