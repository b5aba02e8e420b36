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
	id := hex.EncodeToString(serial[:16])
	components, refs := []object{{
		"type": "platform", "bom-ref": "pkg:golang/std@" + info.GoVersion, "name": "std",
		"version": info.GoVersion, "purl": "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
	}}, []string{"pkg:golang/std@" + info.GoVersion}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		ref := "pkg:golang/" + m.Path + "@" + m.Version
		components = append(components, object{
			"type": "library", "bom-ref": ref, "name": m.Path, "version": m.Version, "purl": ref,
			"properties": []object{{"name": "go:sum", "value": m.Sum}},
		})
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
		"serialNumber": fmt.Sprintf("urn:uuid:%s-%s-%s-%s-%s", id[:8], id[8:12], id[12:16], id[16:20],
			id[20:]),
		"metadata": object{
			"timestamp": r.when.Format(time.RFC3339),
			"component": object{
				"type": "application", "bom-ref": own, "name": "x402-wallet", "version": r.version,
				"licenses":   []object{{"license": object{"id": "Apache-2.0"}}},
				"hashes":     []object{{"alg": "SHA-256", "content": hex.EncodeToString(sum[:])}},
				"properties": settings,
			},
		},
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
		upper := strings.ToUpper(e.Name())
		if !e.IsDir() && slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE"},
			func(p string) bool {
				return strings.HasPrefix(upper, p)
			}) {
			names = append(names, e.Name())
		}
	}
	return names, err
}
