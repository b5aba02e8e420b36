package config

import (
	"net/url"
	"strings"
)

// service is how the wallet is reached where it runs as a service, and whose access tokens let agents in.
type service struct {
	// URL is the origin of its pages and of MCP over HTTP, as the owner's browser and the agents have it,
	// without a path: https, or http of this machine; "": it is reached by its address alone.
	URL string `toml:"url"`
	// Issuer is the authorization server whose access tokens let agents in, exactly as they name it; "":
	// none do, and there is no Audience.
	Issuer string `toml:"issuer"`
	// Audience is whom such tokens have to be for.
	Audience string `toml:"audience"`
	// KeysURL is where that server's keys are; "": where its metadata says.
	KeysURL string `toml:"jwks_uri"`
}

// mcpPath is where MCP is at the service's origin.
const mcpPath = "/mcp"

// maxAudience bounds an audience, in bytes.
const maxAudience = 512

func (c *Checker) service(f service) service {
	s := f
	s.URL = c.origin("service.url", f.URL)
	if s.Issuer == "" {
		c.Refuse(s.Audience != "", "service.audience", "means nothing without issuer")
		c.Refuse(s.KeysURL != "", "service.jwks_uri", "means nothing without issuer")
		return s
	}
	c.issuer(s.Issuer)
	if s.KeysURL != "" {
		c.OwnerURL("service.jwks_uri", s.KeysURL, "https://login.example/jwks.json")
	}
	switch {
	case s.Audience == "" && s.URL == "":
		c.Refuse(f.URL == "", "service.issuer",
			`needs audience = "https://wallet.example/mcp" beside it, or url`)
	case s.Audience == "":
		s.Audience = s.URL + mcpPath
	case s.URL == "": // then it is what clients are told that this is
		c.OwnerURL("service.audience", s.Audience, "https://wallet.example/mcp")
	}
	c.plainText("service.audience", s.Audience, maxAudience)
	c.Refuse(strings.ContainsAny(s.Audience, " \t"), "service.audience", "has a space")
	return s
}

// origin checks an origin that the owner wrote, with or without a slash; "" is none.
func (c *Checker) origin(key, text string) string {
	if text == "" {
		return ""
	}
	u := c.OwnerURL(key, text, "https://wallet.example")
	if u == nil {
		return ""
	}
	origin := u.Scheme + "://" + u.Host
	c.Refuse(text != origin && text != origin+"/", key,
		"must be an origin like https://wallet.example, without a path")
	c.Refuse(origin != strings.ToLower(origin), key, "must be in small letters")
	return origin
}

// issuer checks an authorization server's name, which is an address (RFC 8414 §2).
func (c *Checker) issuer(written string) {
	u := c.OwnerURL("service.issuer", written, "https://login.example")
	if u == nil {
		return
	}
	plain := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	c.Refuse(written != plain.String(), "service.issuer",
		"must be an address like https://login.example/tenant, as tokens have it, without user, query and #")
}
