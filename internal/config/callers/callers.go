// Package callers says which agent of the rules somebody is: by a bearer token, a user of the system, a
// client certificate or an access token.
package callers

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"x402-wallet/internal/config"
)

// TokenHash is what is kept of a bearer token: it is random, so that a plain hash does not give it away.
func TokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// AgentByToken is the agent that a bearer token is of. It takes as long whichever agent's the token is, and
// whether it is any's.
func ByToken(c *config.Config, token string) (name string, ok bool) {
	given := []byte(TokenHash(token))
	for _, each := range slices.Sorted(maps.Keys(c.Agents)) {
		if subtle.ConstantTimeCompare(given, []byte(c.Agents[each].Token)) == 1 {
			name, ok = each, true
		}
	}
	return name, ok
}

// AgentByUser is the agent whose socket sessions a user's are: by its uid or SID, or by the login name that
// belongs to that, "" where nobody knows one. None where it is of two agents, of one by its name and of the
// other by its number.
func ByUser(c *config.Config, user, login string) (name string, ok bool) {
	return onlyAgent(c, func(a config.Agent) bool {
		return a.User != "" && (a.User == user || isLogin(a.User, login))
	})
}

// isLogin compares a login name with one that the owner wrote. DOMAIN\name is Windows', where letters may be
// small or capital.
func isLogin(written, login string) bool {
	return written == login || (strings.Contains(login, `\`) && strings.EqualFold(written, login))
}

// AgentByCertificate is the agent whose client certificate has a subject.
func ByCertificate(c *config.Config, subject string) (name string, ok bool) {
	return onlyAgent(c, func(a config.Agent) bool { return a.Certificate != "" && a.Certificate == subject })
}

// AgentBySubject is the agent whose access tokens have a sub, to the letter.
func BySubject(c *config.Config, subject string) (name string, ok bool) {
	return onlyAgent(c, func(a config.Agent) bool { return a.Subject != "" && a.Subject == subject })
}

// onlyAgent is the one agent that is so; none where there are two.
func onlyAgent(c *config.Config, is func(config.Agent) bool) (name string, ok bool) {
	for each, a := range c.Agents {
		if !is(a) {
			continue
		}
		if ok {
			return "", false
		}
		name, ok = each, true
	}
	return name, ok
}
