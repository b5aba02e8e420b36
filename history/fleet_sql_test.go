package history

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What other engines that speak PostgreSQL do not carry, or carry in name alone, is not in what makes a
// fleet's ledger, nor in what asks it.
func TestTheFleetsSQLIsPortable(t *testing.T) {
	files, err := filepath.Glob("fleet*.go")
	require.NoError(t, err)
	texts := map[string]string{"postgres.sql": fleetTables, "postgres_functions.sql": fleetFunctions}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		texts[name] = string(text)
	}
	never := regexp.MustCompile(`(?i)pg_(try_)?advisory|\bLISTEN\b|\bNOTIFY\b|\bTRIGGER\b|` +
		`\bnextval\b|\bcurrval\b|\bSERIAL\b|` +
		`\bSERIALIZABLE\b|\bCREATE (UNLOGGED|TEMP)|\bCREATE EXTENSION\b|\bctid\b`)
	for name, text := range texts {
		if name == "fleetsearch.go" { // without which it searches more slowly
			text = strings.ReplaceAll(text, "CREATE EXTENSION IF NOT EXISTS pg_trgm", "")
		}
		require.Empty(t, never.FindAllString(withoutComments(text), -1), name)
	}
}

// A number that the server gives has gaps, and not the order of commits: it orders nothing that a decision or
// a chain rests on. By it are ordered only those of one moment, which are all looked at, or a list's pages.
func TestNothingIsDecidedByTheOrderOfNumbers(t *testing.T) {
	allowed := []string{
		"ORDER BY created_at DESC, seq DESC", // the newest payments: of one microsecond any order will do
		"ORDER BY at, seq",                   // of all chains, or a chain's own number, which has no gaps
		"ORDER BY writer, seq",               // the chain's own number
		"ORDER BY seq",                       // the chain's own number
	}
	by := regexp.MustCompile(`(?i)ORDER BY [^)\x60]*?\b(seq|number)\b( DESC)?`)
	texts := map[string]string{"postgres_functions.sql": fleetFunctions}
	for _, name := range []string{"fleetfacts.go", "fleetreserve.go", "fleetsubmit.go", "fleetfinish.go",
		"fleetverify.go"} {
		texts[name] = fileText(t, name)
	}
	for name, text := range texts {
		for _, found := range by.FindAllString(withoutComments(text), -1) {
			found = strings.Join(strings.Fields(found), " ")
			if name == "fleetverify.go" && found == "ORDER BY seq DESC" { // fleetHead: the chain's own
				continue
			}
			require.True(t, slices.Contains(allowed, found), "%s: %s", name, found)
		}
	}
}

// Each UPDATE of counters names one row by its whole key: an UPDATE of several locks them in the order in
// which it meets them, and two such lock each other out.
func TestOneCounterIsLockedAtATime(t *testing.T) {
	updates := regexp.MustCompile(`(?s)(UPDATE counters|FROM counters[^;]*FOR UPDATE).*?;`).
		FindAllString(withoutComments(fleetFunctions), -1)
	require.GreaterOrEqual(t, len(updates), 5)
	for _, update := range updates {
		for _, column := range []string{"budget", "win", "starts"} {
			require.Regexp(t, `\b`+column+` = `, update)
		}
	}
}

func fileText(t *testing.T, name string) string {
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

func withoutComments(text string) string {
	return regexp.MustCompile(`(?m)(--|//).*$`).ReplaceAllString(text, "")
}
