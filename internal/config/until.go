package config

import (
	"slices"
	"strings"
	"time"

	"x402-wallet/x402"
)

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
