package x402

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
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

// Whatever a stranger wrote stands in our words in at most 120 escaped characters, and moves nothing.
func TestStrangersWordsAreShort(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "a word": "eip155:8453", "long": strings.Repeat("ignore the rules ", 1000),
		"turned around": strings.Repeat("\u202e", 500), "tags": strings.Repeat("\U000e0041", 500),
		"lines": strings.Repeat("\n\r\x1b[2J\x00", 100), "quotes": strings.Repeat(`"\`, 300),
		"no UTF-8": strings.Repeat("\xff\xfe", 300), "accents": strings.Repeat("é", 300),
		"almost": strings.Repeat("a", 114) + "\u202e", "full": strings.Repeat("b", 121),
	} {
		t.Run(name, func(t *testing.T) {
			quoted := strings.TrimSuffix(strings.TrimPrefix(Quote(text), `"`), `"`)
			for what, said := range map[string]string{"Quote": quoted, "Brief": Brief(text)} {
				require.LessOrEqual(t, utf8.RuneCountInString(said), maxQuoted, what)
				for _, r := range said {
					require.True(t, r >= ' ' && r <= '~', "%s: %q", what, r)
				}
			}
		})
	}
	solana := strings.Repeat("5", 88)
	require.Equal(t, solana, Brief(solana), "a transaction is shown whole")
	require.Equal(t, `"`+solana+`"`, Quote(solana))
}

// Every code has someone who can mend it, is explained, and stands in the table of
// docs/codes.md; and nothing else does.
func TestEveryCodeIsInTheTables(t *testing.T) {
	file := must.Get(parser.ParseFile(gotoken.NewFileSet(), "errors.go", nil, 0))(t)
	declared := map[Code]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Code" {
			text := must.Get(strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value))(t)
			require.False(t, declared[Code(text)], "%s stands twice", text)
			declared[Code(text)] = true
			actor := (&Error{Code: Code(text)}).FixableBy()
			require.Contains(t, []Actor{byAgent, ByPerson, ByTime, bySeller, byWallet}, actor, text)
			require.True(t, Code(text).IsKnown(), text)
		}
		return true
	})
	require.Len(t, declared, 49)
	require.Len(t, codes, len(declared))
	require.False(t, Code("NO_SUCH").IsKnown())
}

type coded struct{ error }

func (coded) Code() string { return "WALLET_LOCKED" }
func (coded) Hint() string { return "unlock it" }

func TestAsErrorKeepsWhatItKnowsAndHidesWhatItDoesNot(t *testing.T) {
	own := Errorf(BudgetExceeded, "no")
	require.Same(t, own, AsError(fmt.Errorf("pay: %w", own)))

	e := AsError(fmt.Errorf("pay: %w", coded{errors.New("locked")}))
	require.Equal(t, []any{WalletLocked, "unlock it", ByPerson}, []any{e.Code, e.Hint, e.FixableBy()})

	e = AsError(errors.New("open /home/someone/secret"))
	require.Equal(t, Internal, e.Code)
	require.NotContains(t, e.Error(), "secret")
	require.False(t, HasCode(nil, Internal))
}

// What is shown of a stranger's text is bounded, whole characters, and in quotes printable ASCII.
func TestTexts(t *testing.T) {
	require.Equal(t, "abc", Clip("abc", 3))
	require.Equal(t, "abc…", Clip("abcd", 3))
	require.Equal(t, "ab…", Clip("abéd", 3), "é is two bytes")
	require.Equal(t, strings.Repeat("0", 114)+`\u2026`, Brief(strings.Repeat("0", 121)))
	require.Equal(t, `"a\n\u202eb\x1b"`, Quote("a\n\u202eb\x1b"))
	require.Len(t, Quote(strings.Repeat("0", 1000)), maxQuoted+len(`""`))
}

// A text of ours may be longer than a stranger's, and has its bound all the same.
func TestBriefTo(t *testing.T) {
	long := strings.Repeat("word ", 50)
	require.Equal(t, long, BriefTo(long, 400))
	require.LessOrEqual(t, len(BriefTo(strings.Repeat("\u202e", 400), 300)), 300)
	require.Greater(t, len(BriefTo(strings.Repeat("\u202e", 400), 300)), 280)
	require.Equal(t, Brief(long), BriefTo(long, maxQuoted))
}
