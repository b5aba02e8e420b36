package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"x402-wallet/internal/config"
	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/oauth"
	"x402-wallet/internal/relay"
	"x402-wallet/internal/socket"
	"x402-wallet/tools"
	"x402-wallet/x402"
)

// doorkeeper says who comes in, by the owner's rules as they are at that moment. That a name comes from
// rules that are sealed is seen to by whoever signs.
type doorkeeper struct {
	load func() (*config.Config, error)
	home string
	log  *slog.Logger

	mu    sync.Mutex
	rules *config.Config // as read last
	// of the authorization server that rules name; nil: they name none
	tokens *oauth.Verifier
}

// now are the rules. Where they cannot be read they are empty: nobody has a name then.
func (a *doorkeeper) now() *config.Config {
	rules, _ := a.both()
	return cmp.Or(rules, &config.Config{})
}

// both are the rules, and what verifies the access tokens of the authorization server that they name; nil
// where there is none.
func (a *doorkeeper) both() (*config.Config, *oauth.Verifier) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rules != nil && a.rules.Same(a.home) {
		return a.rules, a.tokens
	}
	rules, err := a.load()
	if err != nil {
		a.log.Warn("no agent is let in by its name", "why", err)
	}
	a.rules = rules
	a.tokens = a.verifier(rules)
	return a.rules, a.tokens
}

// verifier keeps the one there is, with its keys, where the rules name the same server.
func (a *doorkeeper) verifier(rules *config.Config) *oauth.Verifier {
	if rules == nil || rules.Service.Issuer == "" {
		return nil
	}
	server := oauth.Server{Issuer: rules.Service.Issuer, Audience: rules.Service.Audience,
		KeysURL: rules.Service.KeysURL, Proxy: rules.Network.Proxy}
	if a.tokens != nil && a.tokens.Server == server {
		return a.tokens
	}
	return oauth.New(server, a.log)
}

var (
	errNoIssuer  = errors.New("no agent has it, and the rules name no authorization server")
	errNoSubject = errors.New("its subject is no agent's")
)

// ByAccessToken is the agent whose token of the authorization server it is, and until when it is good. The
// error is for the log.
func (a *doorkeeper) ByAccessToken(ctx context.Context, token string) (name string, until time.Time,
	err error) {
	_, tokens := a.both()
	if tokens == nil {
		return "", time.Time{}, errNoIssuer
	}
	subject, until, err := tokens.Verify(ctx, token)
	if err != nil {
		return "", time.Time{}, err
	}
	rules, still := a.both() // the owner may have changed them while keys were fetched
	if still != tokens {
		return "", time.Time{}, errNoIssuer
	}
	name, ok := callers.BySubject(rules, subject)
	if !ok {
		return "", time.Time{}, errNoSubject
	}
	return name, until, nil
}

// Resource is how the rules say that MCP over HTTP is reached, and whose tokens it takes.
func (a *doorkeeper) Resource() tools.Resource {
	s := a.now().Service
	return tools.Resource{Origin: s.URL, Audience: s.Audience, Issuer: s.Issuer}
}

// ByToken is the agent whose token it is.
func (a *doorkeeper) ByToken(token string) (name string, ok bool) {
	return callers.ByToken(a.now(), token)
}

// ByCertificate is the agent whose client certificate has this subject.
func (a *doorkeeper) ByCertificate(subject string) (name string, ok bool) {
	return callers.ByCertificate(a.now(), subject)
}

// account is the account that an agent pays from; "": the wallet's own. That the rules are sealed is seen to
// by whoever signs.
func (a *doorkeeper) account(agent string) string { return a.now().AccountOf(agent) }

// asAccount is who a session is that names the account it pays from: the account's own agent, where the
// caller has no name. Who has one pays from where the rules say, and may name nothing else.
func (a *doorkeeper) asAccount(agent, account string) (string, error) {
	switch {
	case account == "":
		return agent, nil
	case !a.now().HasAccount(account):
		return "", config.NoAccount(account)
	case agent == "":
		return account, nil
	case a.account(agent) == account:
		return agent, nil
	}
	return "", x402.Errorf(x402.PolicyDenied, "the owner's rules do not have the agent %s pay from the "+
		"account %s", x402.Quote(agent), account).
		WithHint("leave out --account: the service knows from where an agent pays")
}

// bySession says whose session it is: of the agent whose token it shows, else of the one whose processes'
// user it comes from, else of nobody with a name where that is the service's own user, which shows the secret
// of the home, or root, who could be it. The error is POLICY_DENIED.
func (a *doorkeeper) bySession(s *relay.Session) (name string, err error) {
	if s.Token != "" {
		name, ok := a.ByToken(s.Token)
		if !ok {
			return "", x402.Errorf(x402.PolicyDenied, "the service knows no agent with this token").
				WithHint("the owner makes one: x402-wallet agents add NAME")
		}
		return name, nil
	}
	if s.User == socket.Unproven {
		return "", x402.Errorf(x402.PolicyDenied, "the service does not take a program of its own user that "+
			"cannot read the wallet's home").
			WithHint("set X402_WALLET_HOME to the service's home, or X402_WALLET_TOKEN to an agent's token")
	}
	if name, ok := callers.ByUser(a.now(), string(s.User), s.User.Login()); ok {
		return name, nil
	}
	if self, err := socket.Self(); err == nil && (s.User == self || s.User == socket.Root) {
		return "", nil
	}
	return "", x402.Errorf(x402.PolicyDenied, "the wallet's owner does not let user %s in", s.User).
		WithHint("set X402_WALLET_TOKEN to an agent's token, or have the owner name the user: "+
			"x402-wallet agents add NAME --user %s", s.User)
}
