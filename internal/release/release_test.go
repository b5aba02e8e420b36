package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/attest"
)

// small makes a release of two platforms out of a few bytes; `make reproducible` does it with the
// real binaries.
func small(t *testing.T, pages []file) (r *release, files map[string][]byte) {
	t.Helper()
	made := &debug.BuildInfo{
		GoVersion: "go1.26.0", Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}},
		Deps: []*debug.Module{{Path: "example.com/used", Version: "v1.0.0", Sum: "h1:abc="},
			{Path: "example.com/old", Replace: &debug.Module{Path: "example.com/new", Version: "v2.0.0"}}},
	}
	r = &release{version: "1.2.3", when: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
		publisher: "io.github.example", url: "https://mcp.example/files", out: t.TempDir(), root: "../..",
		commit: "0123456789abcdef0123456789abcdef01234567", programs: attest.Sums{}}
	list := []target{{"linux", "amd64"}, {"windows", "arm64"}}
	for _, to := range list {
		require.NoError(t, r.pack(to, []byte("program for "+to.String()), made, pages))
	}
	require.NoError(t, r.finish(t.Context(), list))
	files = map[string][]byte{}
	entries, err := os.ReadDir(r.out)
	require.NoError(t, err)
	for _, e := range entries {
		files[e.Name()], err = os.ReadFile(filepath.Join(r.out, e.Name()))
		require.NoError(t, err)
	}
	return r, files
}

func TestTheSameBytesTwice(t *testing.T) {
	one, two := file{name: "man/x402-wallet.1", body: []byte("page")},
		file{name: "LICENSE", body: []byte("licence")}
	_, first := small(t, []file{one, two})
	_, second := small(t, []file{two, one}) // maps have no order
	require.Len(t, first, 9)
	require.Equal(t, first, second)

	sums := string(first["SHA256SUMS"])
	for name, body := range first {
		if name != "SHA256SUMS" {
			require.Contains(t, sums, "  "+name+"\n")
		}
		require.NotContains(t, string(body), os.TempDir()+"/", name)
	}
}

func TestArchives(t *testing.T) {
	_, files := small(t, []file{{name: "LICENSE", body: []byte("licence")},
		{name: "man/x402-wallet.1", body: []byte("page")}})
	packed, err := gzip.NewReader(bytes.NewReader(files["x402-wallet-1.2.3-linux-amd64.tar.gz"]))
	require.NoError(t, err)
	seen := map[string]int64{}
	for archive := tar.NewReader(packed); ; {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		require.Equal(t, time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC), header.ModTime.UTC())
		require.Zero(t, header.Uid+header.Gid)
		require.Empty(t, header.Uname+header.Gname)
		seen[header.Name] = header.Mode
	}
	require.Equal(t, map[string]int64{
		"x402-wallet-1.2.3-linux-amd64/LICENSE":           0o644,
		"x402-wallet-1.2.3-linux-amd64/man/x402-wallet.1": 0o644,
		"x402-wallet-1.2.3-linux-amd64/x402-wallet":       0o755,
	}, seen)

	names := namesIn(t, files["x402-wallet-1.2.3-windows-arm64.zip"])
	require.Contains(t, names, "x402-wallet-1.2.3-windows-arm64/x402-wallet.exe")
}

func namesIn(t *testing.T, archive []byte) (names map[string]fs.FileMode) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	require.NoError(t, err)
	names = map[string]fs.FileMode{}
	for _, f := range z.File {
		names[f.Name] = f.Mode()
	}
	return names
}

func TestBundleAndRegistryEntry(t *testing.T) {
	_, files := small(t, []file{{name: "LICENSE", body: []byte("licence")},
		{name: "man/x402-wallet.1", body: []byte("page")}})
	bundle := files["x402-wallet-1.2.3-windows-arm64.mcpb"]
	require.Equal(t, map[string]fs.FileMode{"LICENSE": 0o644, "manifest.json": 0o644,
		"server/x402-wallet.exe": 0o755}, namesIn(t, bundle))
	z, err := zip.NewReader(bytes.NewReader(bundle), int64(len(bundle)))
	require.NoError(t, err)
	in, err := z.Open("manifest.json")
	require.NoError(t, err)
	var manifest struct {
		Version string `json:"manifest_version"`
		Server  struct {
			Type   string
			Entry  string `json:"entry_point"`
			Config struct {
				Command string
				Args    []string
			} `json:"mcp_config"`
		}
		Compatibility struct{ Platforms []string }
	}
	require.NoError(t, json.NewDecoder(in).Decode(&manifest))
	require.Equal(t, "0.3", manifest.Version)
	require.Equal(t, "binary", manifest.Server.Type)
	require.Equal(t, "${__dirname}/"+manifest.Server.Entry, manifest.Server.Config.Command)
	require.Equal(t, []string{"mcp"}, manifest.Server.Config.Args)
	require.Equal(t, []string{"win32"}, manifest.Compatibility.Platforms)

	var entry struct {
		Name, Version, Description string
		Packages                   []struct {
			RegistryType, Identifier, FileSha256 string
			Transport                            struct{ Type string }
		}
	}
	require.NoError(t, json.Unmarshal(files["server.json"], &entry))
	require.Equal(t, "io.github.example/x402-wallet", entry.Name)
	require.LessOrEqual(t, len(entry.Description), 100) // its schema
	require.Len(t, entry.Packages, 2)
	for _, p := range entry.Packages {
		require.Equal(t, "mcpb", p.RegistryType)
		require.Contains(t, string(files["SHA256SUMS"]), p.FileSha256+"  "+strings.TrimPrefix(p.Identifier,
			"https://mcp.example/files/")+"\n")
	}
}

func TestBillOfMaterials(t *testing.T) {
	_, files := small(t, nil)
	var bill struct {
		BomFormat, SpecVersion, SerialNumber string
		Components                           []struct{ Purl string }
		Dependencies                         []struct{ DependsOn []string }
	}
	require.NoError(t, json.Unmarshal(files["x402-wallet-1.2.3-linux-amd64.cdx.json"], &bill))
	require.Equal(t, "CycloneDX", bill.BomFormat)
	require.Equal(t, "1.6", bill.SpecVersion)
	require.Regexp(t, `^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`,
		bill.SerialNumber)
	var purls []string
	for _, c := range bill.Components {
		purls = append(purls, c.Purl)
	}
	require.Equal(t, []string{"pkg:golang/std@1.26.0", "pkg:golang/example.com/used@v1.0.0",
		"pkg:golang/example.com/new@v2.0.0"}, purls)
	require.Len(t, bill.Dependencies[0].DependsOn, len(purls))
}

func TestVersions(t *testing.T) {
	for described, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-4-gabcdef0": "1.2.3-4-gabcdef0", "abcdef0": "0.0.0-dev.gabcdef0",
		"1234567-dirty": "0.0.0-dev.g1234567.dirty", "unknown": "0.0.0-dev.gunknown",
	} {
		t.Run(described, func(t *testing.T) {
			require.Equal(t, want, semver(described))
		})
	}
}

// Every licence of what is in the binary is found: go list knows it as the build does.
func TestLicencesAreGivenAlong(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"LICENSE.txt", "COPYING", "notice.md", "main.go"} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		})
	}
	names, err := licenceFiles(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"COPYING", "LICENSE.txt", "notice.md"}, names)
}
