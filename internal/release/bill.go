package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// bill is the bill of materials of a binary, CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).
// The serial number is made from the binary, so that the same binary has the same bill.
func (r *release) bill(t target, program []byte, info *debug.BuildInfo) ([]byte, error) {
	sum := sha256.Sum256(program)
	serial := sha256.Sum256(append([]byte("bill of materials "), sum[:]...))
	// RFC 9562 §5.8, version 8: our own way to make it
	serial[6], serial[8] = serial[6]&0x0f|0x80, serial[8]&0x3f|0x80
	id := serial[:16]
	std := "pkg:golang/std@"
	components := []object{{"type": "platform", "bom-ref": std + info.GoVersion, "name": "std",
		"version": info.GoVersion, "purl": std + strings.TrimPrefix(info.GoVersion, "go")}}
	refs := []string{std + info.GoVersion}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		ref := "pkg:golang/" + m.Path + "@" + m.Version
		components = append(components, object{"type": "library", "bom-ref": ref, "name": m.Path,
			"version": m.Version, "purl": ref, "properties": []object{{"name": "go:sum", "value": m.Sum}}})
		refs = append(refs, ref)
	}
	settings := []object{}
	for _, s := range info.Settings {
		settings = append(settings, object{"name": "go:build:" + s.Key, "value": s.Value})
	}
	own := "x402-wallet@" + r.version + "-" + t.String()
	return indented(object{
		"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX",
		"specVersion": "1.6", "version": 1,
		"serialNumber": fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]),
		"metadata": object{"timestamp": r.when.Format(time.RFC3339), "component": object{
			"type": "application", "bom-ref": own, "name": "x402-wallet", "version": r.version,
			"licenses":   []object{{"license": object{"id": "Apache-2.0"}}},
			"hashes":     []object{{"alg": "SHA-256", "content": hex.EncodeToString(sum[:])}},
			"properties": settings,
		}},
		"components": components, "dependencies": []object{{"ref": own, "dependsOn": refs}},
	})
}

// licencesOf are the licences of everything in the binary, word for word: most of them ask to be
// given along.
func licencesOf(ctx context.Context, info *debug.BuildInfo) ([]byte, error) {
	var b strings.Builder
	for _, m := range info.Deps {
		text, err := output(ctx, nil, "go", "mod", "download", "-json", m.Path+"@"+m.Version)
		if err != nil {
			return nil, err
		}
		var at struct{ Dir string }
		if err := json.Unmarshal([]byte(text), &at); err != nil {
			return nil, err
		}
		files, err := licenceFiles(at.Dir)
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			fmt.Fprintf(os.Stderr, "%s %s comes without a licence of its own\n", m.Path, m.Version)
			fmt.Fprintf(&b, "==== %s %s: no licence in the module; see where it comes from\n\n", m.Path,
				m.Version)
		}
		for _, name := range files {
			text, err := os.ReadFile(filepath.Join(at.Dir, name))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "==== %s %s: %s\n\n%s\n\n", m.Path, m.Version, name,
				strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")))
		}
	}
	return []byte(b.String()), nil
}

func licenceFiles(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		isLicence := func(word string) bool { return strings.HasPrefix(strings.ToUpper(e.Name()), word) }
		if !e.IsDir() && slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE"}, isLicence) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

const (
	about = "The wallet an AI agent can be trusted with: pays x402 URLs inside budgets that the agent " +
		"cannot move."
	long = "The agent asks for a paid URL; the wallet pays with USDC on Base, other EVM chains or Solana, " +
		"inside budgets that you set, and returns the content with a receipt. Keys stay encrypted on this " +
		"computer.\n\nBefore the first payment run `x402-wallet init` in a terminal once: it asks for a " +
		"passphrase, which no agent and no settings file ever sees."
)

type object = map[string]any

// bundle is an MCP bundle: a zip with a manifest, for hosts that install by a click
// (github.com/modelcontextprotocol/mcpb, MANIFEST.md, version 0.3). It takes no settings: a secret
// has no place in them.
func (r *release) bundle(t target, program []byte, pages []file) ([]byte, error) {
	manifest, err := indented(object{
		"manifest_version": "0.3", "name": "x402-wallet", "display_name": "x402-wallet", "version": r.version,
		"description": about, "long_description": long, "license": "Apache-2.0", "tools_generated": true,
		"author":   object{"name": "The x402-wallet authors"},
		"keywords": []string{"x402", "payments", "wallet", "usdc"},
		"server": object{"type": "binary", "entry_point": "server/" + t.binary(), "mcp_config": object{
			"command": "${__dirname}/server/" + t.binary(), "args": []string{"mcp"}, "env": object{}}},
		"compatibility": object{"platforms": []string{map[string]string{"linux": "linux", "darwin": "darwin",
			"windows": "win32"}[t.os]}},
	})
	if err != nil {
		return nil, err
	}
	files := []file{{name: "manifest.json", body: manifest},
		{name: "server/" + t.binary(), body: program, run: true}}
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
		packages = append(packages, object{"registryType": "mcpb", "identifier": r.url + "/" + name,
			"version": r.version, "fileSha256": sum, "transport": object{"type": "stdio"}})
	}
	return indented(object{
		"$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
		"name":    r.publisher + "/x402-wallet", "title": "x402-wallet", "description": about[:len(about)-1],
		"version": r.version, "packages": packages,
	})
}
