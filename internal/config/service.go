package config

import "strings"

// service is how the wallet is reached where it runs as a service.
type service struct {
	// URL is the origin of its pages and of MCP over HTTP, as the owner's browser and the agents have it,
	// without a path: https, or http of this machine; "": it is reached by its address alone.
	URL string
}

// fileService is that as it is written.
type fileService struct {
	URL string `toml:"url"`
}

func (c *checker) service(f fileService) service {
	return service{URL: c.origin("service.url", f.URL)}
}

// origin checks an origin that the owner wrote, with or without a slash; "" is none.
func (c *checker) origin(key, text string) string {
	if text == "" {
		return ""
	}
	u := c.ownerURL(key, text, "https://wallet.example")
	if u == nil {
		return ""
	}
	origin := u.Scheme + "://" + u.Host
	c.refuse(text != origin && text != origin+"/", key,
		"must be an origin like https://wallet.example, without a path")
	c.refuse(origin != strings.ToLower(origin), key, "must be in small letters")
	return origin
}
