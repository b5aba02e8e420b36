package config

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"x402-wallet/internal/pattern"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Agent is one of the agents that share the wallet as a service, [agents.NAME]: how it is known, and its own
// limits below the owner's. All empty it is known by nothing, and has the owner's limits alone.
type Agent struct {
	Token string `toml:"token"` // hash of its bearer token, as TokenHash writes it; "": none
	// of the system, whose socket sessions are its: a name, uid or SID; "": none
	User        string `toml:"user"`
	Certificate string `toml:"certificate"` // the subject of its client certificate; "": none
	// what the access tokens of [service] issuer have as its sub
	Subject    string         `toml:"subject"`
	PerCall    *money.Dollars `toml:"-"` // nil: the owner's alone, like the next two
	Day, Month *money.Dollars `toml:"-"`
	AllowHosts []string       `toml:"allow_hosts"` // of those that the owner allows; empty: all of them
	Until      time.Time      `toml:"-"`           // it pays nothing from then on; zero: it has no end
	Label      string         `toml:"label"`       // its name in the owner's books: "team=research"
}

type fileAgent struct {
	Agent
	PerCall *string `toml:"per_call"`
	Day     *string `toml:"day"`
	Month   *string `toml:"month"`
	Until   string  `toml:"until"`
}

// MaxLabel bounds a label, in bytes.
const MaxLabel = 100

// maxSubject bounds a certificate's or an access token's subject and a user's name, in bytes.
const maxSubject = 256

var (
	agentName = pattern.Lazy(`^[a-z][a-z0-9_-]{0,39}$`)
	tokenHash = pattern.Lazy(`^sha256:[0-9a-f]{64}$`)
	uidForm   = pattern.Lazy(`^[0-9]+$`)
	sidStart  = pattern.Lazy(`^[sS]-[0-9]+-`)
	sidForm   = pattern.Lazy(`^S-1-[0-9]{1,15}(-[0-9]{1,10}){1,15}$`)
)

func (c *Checker) agents(written map[string]fileAgent, issuer string) map[string]Agent {
	agents := map[string]Agent{}
	taken := map[string]string{} // what an agent is known by → whose it is
	for _, name := range sorted(written) {
		key, f := Dotted("agents", name), written[name]
		c.Refuse(!agentName().MatchString(name), key,
			"an agent's name is 1 to 40 of a-z, 0-9, - and _, and begins with a letter")
		c.Refuse(f.Token != "" && !tokenHash().MatchString(f.Token), key+".token",
			`must be "sha256:" and 64 hex digits in small letters: the hash of the token, not the token`)
		c.Refuse(uidForm().MatchString(f.User) && !isUID(f.User), key+".user", "%q is not a uid like 1000",
			f.User)
		c.Refuse(sidStart().MatchString(f.User) && !sidForm().MatchString(f.User), key+".user",
			"%q is not a SID like S-1-5-21-1004336348-1177238915-682003330-1001", f.User)
		for part, text := range map[string]string{"user": f.User, "certificate": f.Certificate,
			"subject": f.Subject} {
			c.plainText(key+"."+part, text, maxSubject)
			c.Refuse(text != strings.TrimSpace(text), key+"."+part, "begins or ends with a space")
		}
		c.Refuse(f.Subject != "" && issuer == "", key+".subject",
			"is that of an authorization server's tokens, and [service] names none: it needs issuer")
		c.plainText(key+".label", f.Label, MaxLabel)
		for part, text := range map[string]string{"token": f.Token, "user": f.User,
			"certificate": f.Certificate, "subject": f.Subject} {
			other, twice := taken[part+" "+text]
			c.Refuse(twice && text != "", key+"."+part, "is that of the agent %s, too", other)
			taken[part+" "+text] = name
		}
		a := f.Agent
		a.PerCall, a.Day = c.cap(key+".per_call", f.PerCall), c.cap(key+".day", f.Day)
		a.Month, a.AllowHosts = c.cap(key+".month", f.Month), c.patterns(key+".allow_hosts", f.AllowHosts)
		if f.Until != "" {
			a.Until = c.moment(key+".until", f.Until)
		}
		agents[name] = a
	}
	return agents
}

// plainText refuses what is too long, or would not show as it is.
func (c *Checker) plainText(key, text string, most int) {
	c.Refuse(len(text) > most, key, "is %d bytes long; at most %d are taken", len(text), most)
	unseen := func(r rune) bool { return !unicode.IsPrint(r) }
	c.Refuse(strings.ContainsFunc(text, unseen), key, "has characters that do not show")
}

// isUID reports whether digits are a user's number in its one spelling.
func isUID(text string) bool {
	uid, err := strconv.ParseUint(text, 10, 32)
	return err == nil && strconv.FormatUint(uid, 10) == text
}

// isWithin reports whether an agent is known by the same as before or by less, and has limits that are no
// higher.
func (a Agent) isWithin(was Agent) bool {
	return isLess(a.Token, was.Token) && isLess(a.User, was.User) && isLess(a.Certificate, was.Certificate) &&
		isLess(a.Subject, was.Subject) && isTighter(a.PerCall, was.PerCall) && isTighter(a.Day, was.Day) &&
		isTighter(a.Month, was.Month) && fewerHosts(was.AllowHosts, a.AllowHosts) &&
		endsSooner(a.Until, was.Until)
}

// endsSooner compares two ends; zero is none.
func endsSooner(now, was time.Time) bool { return was.IsZero() || (!now.IsZero() && !now.After(was)) }

// isLess reports whether nobody else is known by a token, user, certificate or subject than before.
func isLess(now, was string) bool { return now == was || now == "" }

// isTighter compares two limits; nil is none.
func isTighter(now, was *money.Dollars) bool { return was == nil || (now != nil && *now <= *was) }

// fewerHosts compares two lists of allowed hosts; an empty one allows any.
func fewerHosts(was, now []string) bool {
	if len(was) == 0 {
		return true
	}
	isNew := func(entry string) bool {
		host, end := HostUntil(entry)
		return !slices.ContainsFunc(was, func(other string) bool {
			name, until := HostUntil(other)
			return name == host && endsSooner(end, until)
		})
	}
	return len(now) > 0 && !slices.ContainsFunc(now, isNew)
}

const until = " until "

// hostsUntil are patterns, each of which may have an end: "api.example.com until 2027-01-01".
func (c *Checker) hostsUntil(key string, written []string) (list []string) {
	list = []string{}
	for _, entry := range written {
		host, end, ends := strings.Cut(entry, until)
		host = c.patterns(key, []string{host})[0]
		named := slices.ContainsFunc(list, func(other string) bool {
			before, _ := HostUntil(other)
			return before == host
		})
		c.Refuse(named && ends, key, "names %q twice, with an end and otherwise", host)
		if ends {
			host += until + x402.Stamp(c.moment(key, end))
		}
		list = append(list, host)
	}
	return list
}

// HostUntil is an entry of allow_hosts in its parts; a zero end is none.
func HostUntil(entry string) (host string, end time.Time) {
	host, text, ends := strings.Cut(entry, until)
	if ends {
		end, _ = time.Parse(time.RFC3339, text) // as hostsUntil wrote it
	}
	return host, end
}
