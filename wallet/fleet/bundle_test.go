package fleet

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// chain is bundles that follow one another.
func chain(t testing.TB, n int) (a Anchor, list []Signed, bundles []Bundle) {
	_, a = golden(t)
	b := firstBundle(t, a)
	for range n {
		if len(list) > 0 {
			rules, err := config.Parse([]byte(b.Config + "# more\n"))
			require.NoError(t, err)
			b = b.Next(list[len(list)-1].Hash(), a, rules, noon, 30*24*time.Hour)
		}
		signed, err := b.Sign(keyOf(t, ownerSeed))
		require.NoError(t, err)
		list, bundles = append(list, signed), append(bundles, b)
	}
	return a, list, bundles
}

func TestBundlesFollowOneAnother(t *testing.T) {
	a, list, bundles := chain(t, 4)
	newest, err := a.VerifyBundles(list)
	require.NoError(t, err)
	require.EqualValues(t, 4, newest.Version)
	none, err := a.VerifyBundles(nil)
	require.NoError(t, err)
	require.Zero(t, none.Version)

	seen := list[1].Seen(bundles[1])
	for i, want := range []Fault{Older, "", "", ""} {
		_, err := a.VerifyBundle(list[i], seen, noon)
		if want == "" {
			require.NoError(t, err, "version %d", i+1)
			continue
		}
		requireFault(t, err, x402.PolicyUnsealed, want)
	}
	for i, signed := range list { // a machine that met none takes each
		_, err := a.VerifyBundle(signed, Seen{}, noon)
		require.NoError(t, err, "version %d", i+1)
	}

	// Two of one version, and one that follows another than was met: two owners with one key, or a
	// ledger that was put back.
	other := bundles[1]
	other.Config = "# another\n"
	signed, err := other.Sign(keyOf(t, ownerSeed))
	require.NoError(t, err)
	_, err = a.VerifyBundle(signed, seen, noon)
	requireFault(t, err, x402.PolicyUnsealed, ChainBroken)
	_, err = a.VerifyBundle(list[2], signed.Seen(other), noon)
	requireFault(t, err, x402.PolicyUnsealed, ChainBroken)
	_, err = a.VerifyBundles([]Signed{list[0], signed, list[2]})
	requireFault(t, err, x402.PolicyUnsealed, ChainBroken)
	for name, some := range map[string][]Signed{"without the first": list[1:],
		"with a gap": {list[0], list[2]}, "backwards": {list[1], list[0]}, "one twice": {list[0], list[0]}} {
		_, err = a.VerifyBundles(some)
		requireFault(t, err, x402.PolicyUnsealed, ChainBroken)
		require.Error(t, err, name)
	}
	skips := bundles[1]
	skips.Version = 3
	signed, err = skips.Sign(keyOf(t, ownerSeed))
	require.NoError(t, err)
	_, err = a.VerifyBundles([]Signed{list[0], signed})
	requireFault(t, err, x402.PolicyUnsealed, ChainBroken)
	_, err = Anchor{Owner: a.Owner, Ledger: "OTHER"}.VerifyBundles(list)
	requireFault(t, err, x402.PolicyUnsealed, AnotherLedger)
}

// What the owner's key signed by a faulty program is not taken either.
func TestBundlesThatCannotBe(t *testing.T) {
	_, a := golden(t)
	owner := keyOf(t, ownerSeed)
	key := Key(owner.Public())
	higher, lower := key, key
	higher[0], lower[0] = 0xff, 0
	for name, edit := range map[string]func(*Bundle){
		"version 0":             func(b *Bundle) { b.Version = 0 },
		"version -1":            func(b *Bundle) { b.Version = -1 },
		"beyond all versions":   func(b *Bundle) { b.Version, b.Previous = maxVersion+1, Hash{1} },
		"second without first":  func(b *Bundle) { b.Version = 2 },
		"first with one before": func(b *Bundle) { b.Previous = Hash{1} },
		"unknown replication":   func(b *Bundle) { b.Replication = "most" },
		"no replication":        func(b *Bundle) { b.Replication = "" },
		"unknown keys":          func(b *Bundle) { b.Keys = "mine" },
		"no end":                func(b *Bundle) { b.Expires = time.Time{} },
		"over before it began":  func(b *Bundle) { b.Expires = b.NotBefore.Add(-time.Second) },
		"for too long":          func(b *Bundle) { b.Expires = b.NotBefore.Add(MaxLife + time.Second) },
		"signers unsorted":      func(b *Bundle) { b.Signers = []Key{higher, lower} },
		"a signer twice":        func(b *Bundle) { b.Signers = []Key{key, key} },
		"too many signers":      func(b *Bundle) { b.Signers = make([]Key, maxKeys+1) },
		"orchestrator of all":   func(b *Bundle) { b.Orchestrators = []Orchestrator{{key, "*", "research"}} },
		"orchestrator of none":  func(b *Bundle) { b.Orchestrators = []Orchestrator{{key, "a-*", ""}} },
		"orchestrator twice": func(b *Bundle) {
			b.Orchestrators = []Orchestrator{{key, "a-*", "a"}, {key, "b-*", "b"}}
		},
		"payers unsorted": func(b *Bundle) {
			b.Payers = map[string][]string{"a": {strings.Repeat("B", 32), strings.Repeat("A", 32)}}
		},
		"a payer that is none": func(b *Bundle) { b.Payers = map[string][]string{"a": {"0x1, 0x2"}} },
		"a team without":       func(b *Bundle) { b.Payers = map[string][]string{"a": {}} },
		"a team that is none": func(b *Bundle) {
			b.Payers = map[string][]string{"A": {strings.Repeat("A", 32)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := firstBundle(t, a)
			edit(&b)
			_, err := sign(kindBundle, b, owner)
			require.ErrorIs(t, err, Unreadable)
			data, err := encode(b)
			require.NoError(t, err)
			_, err = a.VerifyBundle(signedBytes(t, wallet.FleetBundle, data, owner), Seen{}, noon)
			requireFault(t, err, x402.PolicyUnsealed, Unreadable)
		})
	}
}

// The largest config.toml there may be fits into a bundle, whatever it is made of.
func TestTheLargestConfigFits(t *testing.T) {
	_, a := golden(t)
	for _, text := range []string{"\n", "#\"\\\n", "# \u2028\n", "# <&>\n"} {
		rules, err := config.Parse([]byte(strings.Repeat(text, (256<<10)/len(text))))
		require.NoError(t, err, "%q", text)
		b := Bundle{}.Next(Hash{}, a, rules, noon, time.Hour)
		signed, err := b.Sign(keyOf(t, ownerSeed))
		require.NoError(t, err, "%q", text)
		again, err := a.VerifyBundle(signed, Seen{}, noon)
		require.NoError(t, err)
		require.Equal(t, b.Config, again.Config)
	}
}

func TestRulesOfABundle(t *testing.T) {
	_, a := golden(t)
	b := firstBundle(t, a)
	rules, err := b.Rules()
	require.NoError(t, err)
	require.Equal(t, "# mine\n", string(rules.Raw))
	for name, edit := range map[string]func(*Bundle){
		"another replication": func(b *Bundle) { b.Replication = "none" },
		"other keys":          func(b *Bundle) { b.Keys = "shared" },
		"no rules":            func(b *Bundle) { b.Config = "[budgett]\n" },
	} {
		bad := b
		edit(&bad)
		_, err := bad.Rules()
		requireFault(t, err, x402.PolicyUnsealed, Unreadable)
		_, err = bad.Sign(keyOf(t, ownerSeed))
		require.ErrorIs(t, err, Unreadable, name)
	}
}

func TestChangesOfBundles(t *testing.T) {
	_, a := golden(t)
	from := firstBundle(t, a)
	rules, err := config.Parse([]byte("[budget]\nday = '9.00'\n"))
	require.NoError(t, err)
	to := from.Next(Hash{1}, a, rules, noon, time.Hour)
	list, err := Changes(from, to)
	require.NoError(t, err)
	require.Equal(t, []config.Change{{Key: "budget.day", From: "$10.00", To: "$9.00"}}, list)

	key := Key(keyOf(t, ownerSeed).Public())
	to.Signers = append(to.Signers, key, key)
	to.Orchestrators = append(to.Orchestrators, Orchestrator{key, "research-*", "research"})
	to.Payers["research"] = []string{strings.Repeat("B", 32), strings.Repeat("A", 32)}
	to.Payers["gone"] = nil
	to.Sort()
	require.NoError(t, to.check())
	list, err = Changes(from, to)
	require.NoError(t, err)
	require.Equal(t, []config.Change{{Key: "budget.day", From: "$10.00", To: "$9.00"},
		{Key: "signers", From: "none", To: key.String(), Loosens: true},
		{Key: "orchestrators", From: "none", To: key.String() + " research-* research", Loosens: true},
		{Key: "payers", From: "none", Loosens: true,
			To: "research=" + strings.Repeat("A", 32) + " " + strings.Repeat("B", 32)}}, list)
	require.Empty(t, from.Signers, "the one before is not touched")

	next := to.Next(Hash{2}, a, rules, noon, time.Hour)
	next.Payers["research"][0] = "x"
	require.True(t, slices.Contains(to.Payers["research"], strings.Repeat("A", 32)), "nor is this")
}
