package fleet

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"x402-wallet/internal/config"
	"x402-wallet/internal/pattern"
)

// Bundle is the owner's rules for a fleet.
type Bundle struct {
	Head
	Version   int64     `json:"version"`           // 1, 2, …
	Previous  Hash      `json:"previous,omitzero"` // of the bundle before; none for the first
	NotBefore time.Time `json:"notBefore"`         //
	Expires   time.Time `json:"expires"`           //
	// Replication and Keys are what Config says of them, for those that do not read it.
	Replication string `json:"replication"`
	Keys        string `json:"keys"`
	Config      string `json:"config"` // config.toml
	// Signers are the keys of the programs that sign payments, Orchestrators those of programs that enrol
	// agents, Payers the addresses that each team pays from; all sorted.
	Signers       []Key               `json:"signers,omitempty"`
	Orchestrators []Orchestrator      `json:"orchestrators,omitempty"`
	Payers        map[string][]string `json:"payers,omitempty"`
}

// Orchestrator is a program that may enrol agents.
type Orchestrator struct {
	Key    Key    `json:"key"`
	Agents string `json:"agents"` // a name, or a pattern of names
	Team   string `json:"team"`   // that they come into, or into one below it
}

// String is KEY AGENTS TEAM.
func (o Orchestrator) String() string { return o.Key.String() + " " + o.Agents + " " + o.Team }

// Bounds of a bundle's lists.
const (
	maxVersion = 1 << 53 // what every reader of JSON keeps exactly
	maxKeys    = 256
	maxPayers  = 1000
)

func (b Bundle) head() Head { return b.Head }

func (b Bundle) check() error {
	first := b.Version == 1
	switch {
	case b.Version < 1 || b.Version > maxVersion:
		return errors.New("its version is not from 1 to 2^53")
	case first != (b.Previous == Hash{}):
		return errors.New("the first has no hash of one before, and each other one has")
	case !slices.Contains(config.Replications, b.Replication) || !slices.Contains(config.KeyPlaces, b.Keys):
		return errors.New("its replication or keys is a word that is not known")
	case len(b.Signers) > maxKeys || len(b.Orchestrators) > maxKeys || len(b.Payers) > maxPayers:
		return errors.New("one of its lists is too long")
	case !isSorted(b.Signers, compareKeys) || !isSorted(b.Orchestrators, compareOrchestrators):
		return errors.New("its keys are not sorted, or one is there twice")
	}
	for _, o := range b.Orchestrators {
		isAgents := IsName(o.Agents) || IsPattern(o.Agents)
		if !isAgents || !IsName(o.Team) {
			return errors.New("an orchestrator's agents or team are no names")
		}
	}
	return cmp.Or(b.checkPayers(), checkSpan(b.NotBefore, b.Expires, MaxLife))
}

func (b Bundle) checkPayers() error {
	for team, addresses := range b.Payers {
		if !IsName(team) || len(addresses) == 0 || !isSorted(addresses, cmp.Compare[string]) {
			return errors.New("its payers are not sorted, or of a team that is no name")
		}
		for _, address := range addresses {
			if !addressForm().MatchString(address) {
				return errors.New("a payer of it is no address")
			}
		}
	}
	return nil
}

var addressForm = pattern.Lazy(`^[0-9A-Za-z]{20,100}$`)

// Check says what of a bundle cannot be; By and Ledger are not looked at.
func (b Bundle) Check() error { return b.check() }

func isSorted[T any](list []T, compare func(a, b T) int) bool {
	for i := 1; i < len(list); i++ {
		if compare(list[i-1], list[i]) >= 0 {
			return false
		}
	}
	return true
}

func compareKeys(a, b Key) int { return bytes.Compare(a[:], b[:]) }

func compareOrchestrators(a, b Orchestrator) int { return compareKeys(a.Key, b.Key) }

// Seen is the newest bundle that was met; the zero value: none was.
type Seen struct {
	Version int64
	Hash    Hash
}

// Seen is what is remembered of a bundle that was believed.
func (s Signed) Seen(b Bundle) Seen { return Seen{Version: b.Version, Hash: s.Hash()} }

// Sign signs a bundle.
func (b Bundle) Sign(owner Signer) (Signed, error) {
	if _, err := b.Rules(); err != nil {
		return Signed{}, err
	}
	return sign(kindBundle, b, owner)
}

// VerifyBundle reads a bundle that is the owner's, for this ledger, valid now, and no older than the newest
// that was met. Everything else is POLICY_UNSEALED, with a Fault: TooLarge, Changed, AnotherOwner,
// AnotherLedger, Unreadable, Older, ChainBroken, NotYet or Expired. The one right after the newest that was
// met has to follow it; one further on is believed without those between.
func (a Anchor) VerifyBundle(signed Signed, seen Seen, now time.Time) (Bundle, error) {
	b, err := authentic[Bundle](kindBundle, signed, a)
	if err != nil {
		return Bundle{}, err
	}
	switch hash := signed.Hash(); {
	case b.Version < seen.Version:
		return Bundle{}, kindBundle.refuse(Older, "is version %d; version %d was met", b.Version,
			seen.Version)
	case b.Version == seen.Version && hash != seen.Hash:
		return Bundle{}, kindBundle.refuse(ChainBroken, "is another version %d than the one that was met",
			b.Version)
	case b.Version-1 == seen.Version && b.Previous != seen.Hash:
		return Bundle{}, kindBundle.refuse(ChainBroken, "does not follow version %d as it was met",
			seen.Version)
	}
	if err := kindBundle.inTime(b.NotBefore, b.Expires, now); err != nil {
		return Bundle{}, err
	}
	return b, nil
}

// ReadBundle is VerifyBundle for one that is the owner's, for this ledger, whenever it holds and whatever
// was met.
func (a Anchor) ReadBundle(signed Signed) (Bundle, error) {
	return authentic[Bundle](kindBundle, signed, a)
}

// Peek reads a bundle of which nothing is believed yet, to be shown.
func Peek(signed Signed) (Bundle, error) { return read[Bundle](kindBundle, signed.Statement) }

// VerifyBundles reads bundles that follow one another, as the ledger keeps them, from the first; valid or not
// by now. They are the owner's for this ledger, or the error of VerifyBundle says what is wrong.
func (a Anchor) VerifyBundles(list []Signed) (newest Bundle, err error) {
	var seen Seen
	for _, signed := range list {
		b, err := authentic[Bundle](kindBundle, signed, a)
		if err != nil {
			return Bundle{}, err
		}
		if b.Version != seen.Version+1 || b.Previous != seen.Hash {
			return Bundle{}, kindBundle.refuse(ChainBroken, "does not follow version %d", seen.Version)
		}
		newest, seen = b, signed.Seen(b)
	}
	return newest, nil
}

// Rules are the bundle's config.toml: POLICY_UNSEALED where this program cannot read it, or where it says
// something else of replication or keys than the bundle.
func (b Bundle) Rules() (*config.Config, error) {
	rules, err := config.Parse([]byte(b.Config))
	if err != nil {
		return nil, kindBundle.refuse(Unreadable, "has a config.toml that this program cannot read: %v", err)
	}
	if rules.Ledger.Replication != b.Replication || rules.Ledger.Keys != b.Keys {
		return nil, kindBundle.refuse(Unreadable, "says something else of replication or keys than its "+
			"config.toml")
	}
	return rules, nil
}

// Next is the bundle that follows one, which may be the zero Bundle, with new rules and a new time; the lists
// are the same.
func (b Bundle) Next(hash Hash, a Anchor, rules *config.Config, now time.Time, life time.Duration) Bundle {
	next := b
	next.Head = Head{Format: format, By: a.Owner, Ledger: a.Ledger}
	next.Version, next.Previous = b.Version+1, hash
	next.NotBefore, next.Expires = seconds(now), seconds(now.Add(life))
	next.Replication, next.Keys = rules.Ledger.Replication, rules.Ledger.Keys
	next.Config = string(rules.Raw)
	next.Signers, next.Orchestrators = slices.Clone(b.Signers), slices.Clone(b.Orchestrators)
	next.Payers = map[string][]string{}
	for team, list := range b.Payers {
		next.Payers[team] = slices.Clone(list)
	}
	return next
}

// Sort brings the lists into their order, each entry once.
func (b *Bundle) Sort() {
	slices.SortFunc(b.Signers, compareKeys)
	b.Signers = slices.Compact(b.Signers)
	slices.SortFunc(b.Orchestrators, compareOrchestrators)
	b.Orchestrators = slices.Compact(b.Orchestrators)
	for team, list := range b.Payers {
		slices.Sort(list)
		b.Payers[team] = slices.Compact(list)
	}
	maps.DeleteFunc(b.Payers, func(_ string, list []string) bool { return len(list) == 0 })
}

// Changes are what differs between the rules of two bundles; the lists besides are compared as texts, and
// whatever is added there loosens.
func Changes(from, to Bundle) ([]config.Change, error) {
	now, err := to.Rules()
	if err != nil {
		return nil, err
	}
	then, err := from.Rules()
	if err != nil {
		return nil, err
	}
	list := config.Compare(then, now)
	before := from.Lists()
	for i, now := range to.Lists() {
		if now[1] != before[i][1] {
			list = append(list, config.Change{Key: now[0], From: before[i][1], To: now[1], Loosens: true})
		}
	}
	return list, nil
}

// Lists are the lists of a bundle, each by its name and as a text.
func (b Bundle) Lists() [][2]string {
	text := func(list []string) string {
		return cmp.Or(strings.Join(list, ", "), "none")
	}
	var signers, orchestrators, payers []string
	for _, key := range b.Signers {
		signers = append(signers, key.String())
	}
	for _, o := range b.Orchestrators {
		orchestrators = append(orchestrators, o.String())
	}
	for _, team := range slices.Sorted(maps.Keys(b.Payers)) {
		payers = append(payers, team+"="+strings.Join(b.Payers[team], " "))
	}
	return [][2]string{{"signers", text(signers)}, {"orchestrators", text(orchestrators)},
		{"payers", text(payers)}}
}
