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
	Name    string   `toml:"name"`
	URL     string   `toml:"url"`
	Command []string `toml:"command"` // of a program; none: it is at URL
	Env     []string `toml:"env"`     // the variables of ours that it gets besides ChildEnv's own
	Sandbox *bool    `toml:"sandbox"` // of a command, as of a server that is one
	Auth    string   `toml:"-"`       // "none", "cdp", "payai" or "header"
	// auth = "header": an owner-only file holding one line "Name: value"; or a program that prints that line
	HeaderFile    string   `toml:"header_file"`
	HeaderCommand []string `toml:"header_command"`
	// CAIP-2, Mainnets or Testnets; empty: whatever its /supported says
	Networks []string `toml:"networks"`
	Assets   []string `toml:"assets"` // addresses or symbols; empty: all
	// the prices of the payments that it is given, both included; 0: no such bound
	MinPrice money.Dollars `toml:"-"`
	MaxPrice money.Dollars `toml:"-"`
}

type WrittenFacilitator struct {
	Facilitator
	Auth     *string `toml:"auth"`
	MinPrice *string `toml:"min_price"`
	MaxPrice *string `toml:"max_price"`
}

func (c *Checker) Facilitators(written []WrittenFacilitator) (list []Facilitator) {
	for i, f := range written {
		key := fmt.Sprintf("facilitators.%d", i)
		made := f.Facilitator
		made.URL, made.Networks = strings.TrimRight(f.URL, "/"), nil
		made.Auth = c.OneOf(key+".auth", f.Auth, "none", "cdp", "payai", "header")
		c.reached(key, &made)
		twice := slices.ContainsFunc(list, func(other Facilitator) bool { return other.Name == made.Name })
		c.Refuse(twice, key+".name", "%q is the name of two facilitators", made.Name)
		for _, name := range f.Networks {
			if name != Mainnets && name != Testnets {
				name = c.Chain(key+".networks", name)
			}
			made.Networks = append(made.Networks, name)
		}
		c.Refuse(slices.Contains(made.Assets, ""), key+".assets", "has an asset without a name")
		if f.MinPrice != nil {
			made.MinPrice = c.dollars(key+".min_price", f.MinPrice, "")
		}
		if f.MaxPrice != nil {
			made.MaxPrice = c.dollars(key+".max_price", f.MaxPrice, "")
			c.Refuse(made.MaxPrice <= 0 || made.MaxPrice < made.MinPrice, key+".max_price",
				"is below min_price, or 0: nothing would be brought there")
		}
		list = append(list, made)
	}
	return list
}

// mostDirectories is how many lists a search asks at once besides the facilitators'.
const mostDirectories = 8

func (c *Checker) directories(written []string) (list []string) {
	const key = "discovery.directories"
	for _, raw := range written {
		path, isFile := strings.CutPrefix(raw, "file://")
		if isFile || filepath.IsAbs(raw) {
			c.Refuse(!filepath.IsAbs(path), key, "%q is not file:// and a full path", raw)
			list = append(list, "file://"+path)
			continue
		}
		at := c.OwnerURL(key, raw, "https://mpp.dev/api/services")
		c.Refuse(at != nil && at.User != nil, key,
			"has a name or password in it, and this file is not for secrets")
		list = append(list, raw)
	}
	c.Refuse(len(list) > mostDirectories, key, "has %d entries; it must have at most %d", len(list),
		mostDirectories)
	return list
}

// reached checks how a facilitator is reached and how it knows us, and names one that has no name.
func (c *Checker) reached(key string, f *Facilitator) {
	isProgram := len(f.Command) > 0
	c.Refuse(isProgram == (f.URL != ""), key, `needs either url = "https://…" or command = ["/usr/bin/…"]`)
	switch {
	case isProgram:
		c.fullPath(key+".command", f.Command[0])
		c.Refuse(f.Auth != "none" || f.HeaderFile != "" || len(f.HeaderCommand) > 0, key,
			"auth, header_file and header_command are for a facilitator with a url")
		if f.Name == "" {
			f.Name = filepath.Base(f.Command[0])
		}
	case f.URL != "":
		at := c.OwnerURL(key+".url", f.URL, "https://…")
		if f.Name == "" && at != nil {
			f.Name = at.Host
		}
		c.Refuse(f.Env != nil || (f.Sandbox != nil && len(f.HeaderCommand) == 0), key,
			"env is for a facilitator with a command, and sandbox for one with a command or header_command")
	}
	c.Variables(key+".env", f.Env)
	hasFile, hasCommand := f.HeaderFile != "", len(f.HeaderCommand) > 0
	c.Refuse((f.Auth == "header") != (hasFile != hasCommand) || (hasFile && hasCommand), key,
		`auth = "header" goes together with either header_file = "a file with one line Name: value" or `+
			`header_command = ["a program that prints that line"]`)
	if hasCommand {
		c.fullPath(key+".header_command", f.HeaderCommand[0])
	}
}
