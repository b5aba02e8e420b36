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
	if f.URL == "" {
		return service{}
	}
	u := c.ownerURL("service.url", f.URL, "https://wallet.example")
	if u == nil {
		return service{}
	}
	origin := u.Scheme + "://" + u.Host
	c.refuse(f.URL != origin && f.URL != origin+"/", "service.url",
		"must be an origin like https://wallet.example, without a path")
	c.refuse(origin != strings.ToLower(origin), "service.url", "must be in small letters")
	return service{URL: origin}
}
