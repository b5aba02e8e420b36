package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"x402-wallet/x402/money"
)

// Facilitator brings payments to the chain: a service at a URL, or a program.
type Facilitator struct {
	Name, URL  string
	Command    []string // of a program; none: it is at URL
	Env        []string // the variables of ours that it gets besides ChildEnv's own
	Sandbox    *bool    // as of a server that is a command
	Auth       string   // "none", "cdp", "payai" or "header"
	HeaderFile string   // auth = "header": an owner-only file holding one line "Name: value"; or
	// a program that prints that line
	HeaderCommand []string
	Networks      []string // CAIP-2, Mainnets or Testnets; empty: whatever its /supported says
	Assets        []string // addresses or symbols; empty: all
	// the prices of the payments that it is given, both included; 0: no such bound
	MinPrice, MaxPrice money.Dollars
}

type fileFacilitator struct {
	Name          string   `toml:"name"`
	URL           string   `toml:"url"`
	Command       []string `toml:"command"`
	Env           []string `toml:"env"`
	Sandbox       *bool    `toml:"sandbox"`
	Auth          *string  `toml:"auth"`
	HeaderFile    string   `toml:"header_file"`
	HeaderCommand []string `toml:"header_command"`
	Networks      []string `toml:"networks"`
	Assets        []string `toml:"assets"`
	MinPrice      *string  `toml:"min_price"`
	MaxPrice      *string  `toml:"max_price"`
}

func (c *checker) facilitators(written []fileFacilitator) (list []Facilitator) {
	for i, f := range written {
		key := fmt.Sprintf("facilitators.%d", i)
		made := Facilitator{Name: f.Name, URL: strings.TrimRight(f.URL, "/"), Command: f.Command, Env: f.Env,
			Sandbox: f.Sandbox, HeaderFile: f.HeaderFile, HeaderCommand: f.HeaderCommand, Assets: f.Assets,
			Auth: c.oneOf(key+".auth", f.Auth, "none", "cdp", "payai", "header")}
		c.reached(key, &made)
		twice := slices.ContainsFunc(list, func(other Facilitator) bool { return other.Name == made.Name })
		c.refuse(twice, key+".name", "%q is the name of two facilitators", made.Name)
		for _, name := range f.Networks {
			if name != mainnets && name != testnets {
				name = c.chain(key+".networks", name)
			}
			made.Networks = append(made.Networks, name)
		}
		c.refuse(slices.Contains(made.Assets, ""), key+".assets", "has an asset without a name")
		if f.MinPrice != nil {
			made.MinPrice = c.dollars(key+".min_price", f.MinPrice, "")
		}
		if f.MaxPrice != nil {
			made.MaxPrice = c.dollars(key+".max_price", f.MaxPrice, "")
			c.refuse(made.MaxPrice <= 0 || made.MaxPrice < made.MinPrice, key+".max_price",
				"is below min_price, or 0: nothing would be brought there")
		}
		list = append(list, made)
	}
	return list
}

// reached checks how a facilitator is reached and how it knows us, and names one that has no name.
func (c *checker) reached(key string, f *Facilitator) {
	isProgram := len(f.Command) > 0
	c.refuse(isProgram == (f.URL != ""), key, `needs either url = "https://…" or command = ["/usr/bin/…"]`)
	switch {
	case isProgram:
		c.fullPath(key+".command", f.Command[0])
		c.refuse(f.Auth != "none" || f.HeaderFile != "" || len(f.HeaderCommand) > 0, key,
			"auth, header_file and header_command are for a facilitator with a url")
		if f.Name == "" {
			f.Name = filepath.Base(f.Command[0])
		}
	case f.URL != "":
		at := c.ownerURL(key+".url", f.URL, "https://…")
		if f.Name == "" && at != nil {
			f.Name = at.Host
		}
		isForCommand := f.Env != nil || f.Sandbox != nil
		c.refuse(isForCommand, key, "env and sandbox are for a facilitator with a command")
	}
	c.childEnv(key+".env", f.Env)
	hasFile, hasCommand := f.HeaderFile != "", len(f.HeaderCommand) > 0
	c.refuse((f.Auth == "header") != (hasFile != hasCommand) || (hasFile && hasCommand), key,
		`auth = "header" goes together with either header_file = "a file with one line Name: value" or `+
			`header_command = ["a program that prints that line"]`)
	if hasCommand {
		c.fullPath(key+".header_command", f.HeaderCommand[0])
	}
}

// FacilitatorList is the order in which facilitators are asked. Without any in the file: CDP, which needs
// keys, then PayAI for mainnets; x402.org, which knows test networks only, then PayAI for those.
func (c *Config) FacilitatorList(env Env) []Facilitator {
	if len(c.Facilitators) > 0 {
		return c.Facilitators
	}
	var list []Facilitator
	if env.CDPKeyID != "" && env.CDPKeySecret != "" {
		list = append(list, Facilitator{Name: "cdp", URL: cdpURL, Auth: "cdp", Networks: []string{mainnets}})
	}
	return append(list,
		Facilitator{Name: "x402.org", URL: x402orgURL, Auth: "none", Networks: []string{testnets}},
		Facilitator{Name: "payai", URL: payaiURL, Auth: "payai"})
}

const (
	cdpURL     = "https://api.cdp.coinbase.com/platform/v2/x402"
	x402orgURL = "https://x402.org/facilitator"
	payaiURL   = "https://facilitator.payai.network"
)
