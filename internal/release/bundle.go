package main

import (
	"path/filepath"
)

const (
	about = "The wallet an AI agent can be trusted with: pays x402 URLs inside budgets that the agent " +
		"cannot move."
	long = "The agent asks for a paid URL; the wallet pays with USDC on Base, other EVM chains or " +
		"Solana, inside budgets that you set, and " +
		"returns the content with a receipt. Keys stay encrypted on this computer.\n\nBefore the first payment run `x402-wallet init` in a " +
		"terminal once: it asks for a passphrase, which no agent and no settings file ever sees."
)

type object = map[string]any

// bundle is an MCP bundle: a zip with a manifest, for hosts that install by a click
// (github.com/modelcontextprotocol/mcpb, MANIFEST.md, version 0.3). It takes no settings: a secret
// has no place in them.
func (r *release) bundle(t target, program []byte, pages []file) ([]byte, error) {
	manifest, err := indented(object{
		"manifest_version": "0.3", "name": "x402-wallet", "display_name": "x402-wallet", "version": r.version,
		"description":      about,
		"long_description": long, "author": object{"name": "The x402-wallet authors"},
		"license":  "Apache-2.0",
		"keywords": []string{"x402", "payments", "wallet", "usdc"}, "tools_generated": true,
		"server": object{
			"type": "binary", "entry_point": "server/" + t.binary(),
			"mcp_config": object{"command": "${__dirname}/server/" + t.binary(), "args": []string{"mcp"},
				"env": object{}},
		},
		"compatibility": object{"platforms": []string{map[string]string{"linux": "linux", "darwin": "darwin",
			"windows": "win32"}[t.os]}},
	})
	if err != nil {
		return nil, err
	}
	files := []file{{name: "manifest.json", body: manifest}, {name: "server/" + t.binary(), body: program,
		run: true}}
	for _, f := range pages {
		if filepath.Dir(f.name) == "." { // licences and README
			files = append(files, f)
		}
	}
	return zipped(files, r.when)
}

// serverJSON is the entry for the MCP registry: its schema of 2025-12-11, a package for each
// bundle. The registry asks for the bundles' checksums, and wants "mcp" in their address.
func (r *release) serverJSON(list []target) ([]byte, error) {
	packages := []object{}
	for _, t := range list {
		name := "x402-wallet-" + r.version + "-" + t.String() + ".mcpb"
		sum, err := sumOf(filepath.Join(r.out, name))
		if err != nil {
			return nil, err
		}
		packages = append(packages, object{
			"registryType": "mcpb", "identifier": r.url + "/" + name, "version": r.version, "fileSha256": sum,
			"transport": object{"type": "stdio"},
		})
	}
	return indented(object{
		"$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
		"name":    r.publisher + "/x402-wallet", "title": "x402-wallet", "description": about[:len(about)-1],
		"version":  r.version,
		"packages": packages,
	})
}
