package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"x402-wallet/internal/pattern"
)

// ledger is where the ledger is. Without a URL it is ledger.db in the home, and the rest means nothing.
type ledger struct {
	// of PostgreSQL, with no password in it; see ParseLedgerURL
	URL             string   `toml:"url"`
	PasswordFile    string   `toml:"password_file"` // an owner-only file with the password alone; "": none
	PasswordCommand []string `toml:"password_command"`
	Sandbox         *bool    `toml:"sandbox"` // of the command, as of a server that is one
}

func (c *Checker) ledger(l ledger) ledger {
	if len(l.PasswordCommand) > 0 {
		c.fullPath("ledger.password_command", l.PasswordCommand[0])
	}
	c.Refuse(l.Sandbox != nil && len(l.PasswordCommand) == 0, "ledger.sandbox",
		"is for password_command, and there is none")
	c.Refuse(l.PasswordFile != "" && !filepath.IsAbs(l.PasswordFile), "ledger.password_file",
		"must be a full path")
	c.Refuse(l.PasswordFile != "" && len(l.PasswordCommand) > 0, "ledger",
		"has password_file and password_command; it takes one of them")
	if l.URL == "" {
		c.Refuse(l.PasswordFile != "" || len(l.PasswordCommand) > 0, "ledger",
			"has keys that mean nothing without url")
		return l
	}
	if _, err := ParseLedgerURL(l.URL); err != nil {
		c.Fail("ledger.url", "%v", err)
	}
	return l
}

// LedgerURL is the address of a ledger in PostgreSQL: postgres://[user@]host[:port][,…]/database?parameters.
type LedgerURL struct {
	User     string
	Hosts    []string // host, host:port, or the directory of a Unix socket
	Database string
	Params   url.Values
}

// ledgerParams are the parameters that a ledger's URL may have. Others are refused: some of PostgreSQL's hold
// secrets, change what the server does, or read more settings from elsewhere.
var ledgerParams = []string{"host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey",
	"target_session_attrs", "connect_timeout", "application_name"}

const (
	maxLedgerURL   = 2048
	maxLedgerHosts = 16
	maxConnectWait = 60 // seconds
)

var errLedgerPassword = errors.New("has a password in it, which every copy of these rules would show: take " +
	"it out, and use password_file, password_command, a client certificate (sslcert, sslkey) or " +
	"X402_WALLET_LEDGER_PASSWORD")

// ParseLedgerURL takes a ledger's URL apart. It is stricter than PostgreSQL's own programs: TLS is
// verify-full wherever a host is not this machine, and there is no password. No error repeats anything of
// the URL: what is wrong with it may be where a password stands.
func ParseLedgerURL(raw string) (LedgerURL, error) {
	var u LedgerURL
	rest, found := strings.CutPrefix(raw, "postgres://")
	if !found {
		rest, found = strings.CutPrefix(raw, "postgresql://")
	}
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }
	switch {
	case !found:
		return u, errors.New("must begin with postgres:// or postgresql://")
	case len(raw) > maxLedgerURL:
		return u, fmt.Errorf("is longer than %d characters", maxLedgerURL)
	case strings.ContainsFunc(rest, odd):
		return u, errors.New("has a space, # or a letter that is not ASCII; written %XX it may be one")
	}
	address, query, _ := strings.Cut(rest, "?")
	authority, database, _ := strings.Cut(address, "/")
	at := strings.LastIndexByte(authority, '@')
	user, hosts := authority[:max(at, 0)], authority[at+1:]
	if strings.ContainsAny(database, "/@:") {
		return u, errors.New("has a / @ or : after its first /; written %XX it may be part of a name, and " +
			"a password is not written here")
	}
	var err error
	u.Params, err = ledgerQuery(query)
	if err != nil {
		return u, err
	}
	var userErr, databaseErr error
	u.User, userErr = url.PathUnescape(user)
	u.Database, databaseErr = url.PathUnescape(database)
	if userErr != nil || databaseErr != nil {
		return u, errors.New("has a % that is not followed by two hex digits")
	}
	if strings.Contains(u.User, ":") {
		return u, errLedgerPassword
	}
	decoded := u.User + u.Database
	for _, values := range u.Params {
		decoded += values[0]
	}
	if strings.ContainsFunc(decoded, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return u, errors.New("has characters that do not show")
	}
	u.Hosts, err = u.hosts(hosts)
	if err != nil {
		return u, err
	}
	return u, u.checkParams()
}

func ledgerQuery(query string) (url.Values, error) {
	params, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("has parameters that are not written name=value&name=value")
	}
	for name, values := range params {
		switch {
		case strings.Contains(name, "password"):
			return nil, errLedgerPassword
		case !slices.Contains(ledgerParams, name):
			return nil, fmt.Errorf("has a parameter that is not taken; there are %s",
				strings.Join(ledgerParams, ", "))
		case len(values) > 1 || values[0] == "":
			return nil, fmt.Errorf("has %s twice, or empty", name)
		}
	}
	return params, nil
}

func (u LedgerURL) has(param string) bool { return u.Params.Get(param) != "" }

// hosts reads those of the authority, or of the parameter host where the authority has none.
func (u LedgerURL) hosts(authority string) (hosts []string, err error) {
	list := authority
	if u.has("host") {
		if authority != "" {
			return nil, errors.New("has hosts before and after the ?; write them in one place")
		}
		list = u.Params.Get("host")
	}
	if list == "" {
		return nil, errors.New("has no host, like postgres://wallet@db.example/x402?sslmode=verify-full")
	}
	for _, written := range strings.Split(list, ",") {
		host, port := splitHost(written)
		if !u.has("host") {
			if host, err = url.PathUnescape(host); err != nil {
				return nil, errors.New("has a % that is not followed by two hex digits")
			}
		}
		if written != host && port == "" && strings.HasSuffix(written, ":") {
			return nil, errors.New("has an empty port")
		}
		if port != "" && !isPort(port) {
			return nil, errors.New("has a port that is not from 1 to 65535, or a host that is none")
		}
		if !isLedgerHost(host) {
			return nil, errors.New("has a host that is none: a name, an address (IPv6 in brackets) or, for " +
				"a Unix socket, the full path of its directory")
		}
		if port != "" {
			host += ":" + port
		}
		hosts = append(hosts, host)
	}
	if len(hosts) > maxLedgerHosts {
		return nil, fmt.Errorf("has more than %d hosts", maxLedgerHosts)
	}
	return hosts, nil
}

var socketPath = pattern.Lazy(`^/[A-Za-z0-9._/-]*$`)

func isLedgerHost(host string) bool {
	if inner, isV6 := strings.CutPrefix(host, "["); isV6 {
		ip, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return err == nil && ip.Is6() && strings.HasSuffix(inner, "]")
	}
	return socketPath().MatchString(host) || dnsName().MatchString(strings.ToLower(host))
}

// isHere reports whether a host is this machine: loopback, or a Unix socket.
func isHere(host string) bool {
	if strings.HasPrefix(host, "/") {
		return true
	}
	name, _ := splitHost(host)
	return IsLoopback(strings.Trim(strings.ToLower(name), "[]"))
}

// IsHere reports whether every host of the ledger is this machine, so that nothing goes over a network.
func (u LedgerURL) IsHere() bool {
	return !slices.ContainsFunc(u.Hosts, func(host string) bool { return !isHere(host) })
}

func (u LedgerURL) checkParams() error {
	among := func(param string, words ...string) error {
		if u.has(param) && !slices.Contains(words, u.Params.Get(param)) {
			return fmt.Errorf("has another %s than %s", param, strings.Join(words, ", "))
		}
		return nil
	}
	for _, port := range strings.Split(u.Params.Get("port"), ",") {
		if u.has("port") && !isPort(port) {
			return errors.New("has a port that is not from 1 to 65535")
		}
	}
	wait, err := strconv.Atoi(u.Params.Get("connect_timeout"))
	if u.has("connect_timeout") && (err != nil || wait < 1 || wait > maxConnectWait) {
		return fmt.Errorf("has a connect_timeout that is not from 1 to %d (seconds)", maxConnectWait)
	}
	for _, param := range []string{"sslrootcert", "sslcert", "sslkey"} {
		if u.has(param) && !filepath.IsAbs(u.Params.Get(param)) {
			return fmt.Errorf("has a %s that is not a full path", param)
		}
	}
	switch {
	case u.has("sslcert") != u.has("sslkey"):
		return errors.New("has one of sslcert and sslkey, which go together")
	case !u.IsHere() && u.Params.Get("sslmode") != "verify-full":
		return errors.New("must have sslmode=verify-full: without it, whoever is on the way can be " +
			"the ledger")
	}
	return errors.Join(among("sslmode", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
		among("target_session_attrs", "any", "read-write", "primary"))
}
