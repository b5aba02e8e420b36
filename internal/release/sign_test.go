package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/attest"
)

// keygen makes an Ed25519 key with the real tool, which every system with git has as a rule. Without
// it these tests are skipped: what attest reads is shown by files that it made (attest's testdata).
func keygen(t *testing.T, kind string) (path string) {
	t.Helper()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not on this machine")
	}
	path = filepath.Join(t.TempDir(), "key")
	out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f",
		path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

func publicKey(t *testing.T, private string) attest.Key {
	t.Helper()
	text, err := os.ReadFile(private + ".pub")
	require.NoError(t, err)
	key, err := attest.ParseKey(string(text))
	require.NoError(t, err)
	return key
}

// A signed release is believed by the wallet, and by the tools that operating.md names: ssh-keygen
// and sha256sum.
func TestASignedRelease(t *testing.T) {
	private := keygen(t, "ed25519")
	r, _ := small(t, []file{{name: "LICENSE", body: []byte("licence")}})
	r.signer, r.key = private, publicKey(t, private).String()
	require.NoError(t, r.sign(t.Context()))

	program := filepath.Join(t.TempDir(), "anything")
	require.NoError(t, os.WriteFile(program, []byte("program for windows-arm64"), 0o600))
	v, err := attest.Verify(r.out, publicKey(t, private), attest.Program{Path: program, Commit: r.commit})
	require.NoError(t, err)
	require.Equal(t, attest.Released, v.Outcome, v.Message)
	require.Equal(t, "x402-wallet-1.2.3-windows-arm64/x402-wallet.exe", v.Name)
	require.Equal(t, "ok", v.Provenance)
	v, err = attest.Verify(r.out, publicKey(t, private), attest.Program{Path: program,
		Commit: r.commit + "-dirty"})
	require.NoError(t, err)
	require.Equal(t, attest.BadProvenance, v.Outcome)

	checked := func(key attest.Key) (string, error) {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c",
			strings.ReplaceAll(documented(t), "AAAA…", key.String()))
		cmd.Dir = r.out
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	dir := filepath.Join(r.out, "x402-wallet-1.2.3-linux-amd64") // as unpacked
	require.NoError(t, os.Mkdir(dir, 0o700))
	unpacked := filepath.Join(dir, "x402-wallet")
	require.NoError(t, os.WriteFile(unpacked, []byte("program for linux-amd64"), 0o600))
	out, err := checked(publicKey(t, private))
	require.NoError(t, err, out)
	require.Contains(t, out, `Good "x402-wallet-release" signature for x402-wallet`)
	require.Contains(t, out, "x402-wallet-1.2.3-linux-amd64/x402-wallet: OK\n")

	out, err = checked(publicKey(t, keygen(t, "ed25519")))
	require.Error(t, err, out)
	require.NoError(t, os.WriteFile(unpacked, []byte("another"), 0o600))
	out, err = checked(publicKey(t, private))
	require.Error(t, err)
	require.Contains(t, out, "x402-wallet-1.2.3-linux-amd64/x402-wallet: FAILED\n")
}

// documented are the commands by which a person checks a download, as docs/operating.md has them.
func documented(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"bash", "sha256sum"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not on this machine", tool)
		}
	}
	page, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "## Checking a download\n")
	require.True(t, found)
	_, block, found := strings.Cut(section, "```sh\n")
	require.True(t, found)
	commands, _, found := strings.Cut(block, "```\n")
	require.True(t, found)
	return commands
}

// Keys that make no signature a wallet would believe stop the release; no bad signature stays.
func TestKeysThatDoNotSign(t *testing.T) {
	private, other := keygen(t, "ed25519"), keygen(t, "ed25519")
	r, _ := small(t, nil)
	r.signer, r.key = private, publicKey(t, other).String()
	require.ErrorContains(t, r.sign(t.Context()), "does not count")
	require.NoFileExists(t, filepath.Join(r.out, attest.SignatureName))

	r.signer = filepath.Join(t.TempDir(), "nothing")
	require.Error(t, r.sign(t.Context()))
	require.NoFileExists(t, filepath.Join(r.out, attest.SignatureName))

	r = &release{signer: keygen(t, "ecdsa")}
	require.ErrorContains(t, r.readSource(t.Context(), ""), "ssh-keygen -t ed25519")
	r = &release{}
	require.NoError(t, r.readSource(t.Context(), private+".pub"), "a key to compile in signs nothing")
	require.Equal(t, publicKey(t, private).String(), r.key)
	require.Contains(t, strings.Join(r.flags(), " "), " -X main.releaseKey="+r.key)
}

// What is signed is of a commit.
func TestChangesOfOnesOwnAreNotSigned(t *testing.T) {
	private := keygen(t, "ed25519")
	dir := t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"-c", "user.name=x", "-c", "user.email=x@example.com",
		"commit", "-q", "--allow-empty", "-m", "x"}} {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).
			CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	t.Chdir(dir)
	r := &release{signer: private}
	require.NoError(t, r.readSource(t.Context(), ""))
	require.Regexp(t, "^[0-9a-f]{40}$", r.commit)
	require.NoError(t, os.WriteFile("new", nil, 0o600))
	require.ErrorContains(t, r.readSource(t.Context(), ""), "nothing is signed")
	require.NoError(t, (&release{}).readSource(t.Context(), ""), "it is built all the same")
}

// Nor is a binary that was made from another commit, or that does not say from which.
func TestBinariesOfOtherCommitsAreNotSigned(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	for name, said := range map[string][2]string{"another": {strings.Repeat("f", 40), "false"},
		"none": {"", ""}, "changed": {commit, "true"}, "unknown": {commit, ""}} {
		made := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: said[0]},
			{Key: "vcs.modified", Value: said[1]}}}
		err := (&release{commit: commit, signer: "x"}).checkSource(made)
		require.ErrorContains(t, err, "nothing is signed", name)
		require.NoError(t, (&release{commit: commit}).checkSource(made), name)
	}
	made := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: commit},
		{Key: "vcs.modified", Value: "false"}}}
	require.NoError(t, (&release{commit: commit, signer: "x"}).checkSource(made))
}

// The statement is SLSA's, names every file with its checksum, and what is needed to build it again.
func TestProvenance(t *testing.T) {
	_, files := small(t, nil)
	var s struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []struct {
			Name   string
			Digest map[string]string
		}
		Predicate struct {
			BuildDefinition struct {
				BuildType            string
				ExternalParameters   map[string]string
				InternalParameters   map[string]string
				ResolvedDependencies []struct {
					Name        string
					Digest      map[string]string
					Annotations map[string]string
				}
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	require.NoError(t, json.Unmarshal(files[attest.ProvenanceName], &s))
	require.Equal(t, "https://in-toto.io/Statement/v1", s.Type)
	require.Equal(t, "https://slsa.dev/provenance/v1", s.PredicateType)
	require.Len(t, s.Subject, 9, "seven files and two programs")
	for _, f := range s.Subject {
		body, is := files[f.Name]
		if !is {
			_, where, _ := strings.Cut(filepath.Dir(f.Name), "1.2.3-")
			body = []byte("program for " + where)
		}
		sum := sha256.Sum256(body)
		require.Equal(t, hex.EncodeToString(sum[:]), f.Digest["sha256"], f.Name)
		require.Contains(t, string(files[attest.SumsName]), f.Digest["sha256"]+"  "+f.Name+"\n")
	}
	def := s.Predicate.BuildDefinition
	require.Equal(t, "1.2.3", def.ExternalParameters["version"])
	require.Equal(t, "linux-amd64,windows-arm64", def.ExternalParameters["platforms"])
	require.Contains(t, def.InternalParameters["flags"], "-trimpath -buildvcs=true -ldflags -s -w -buildid=")
	require.Contains(t, def.InternalParameters["environment"], "CGO_ENABLED=0")
	require.Equal(t, "source", def.ResolvedDependencies[0].Name)
	require.Equal(t, map[string]string{"gitCommit": "0123456789abcdef0123456789abcdef01234567"},
		def.ResolvedDependencies[0].Digest)
	require.Regexp(t, `^go1\.`, def.ResolvedDependencies[1].Annotations["version"])
	modules, err := os.ReadFile("../../go.sum")
	require.NoError(t, err)
	sum := sha256.Sum256(modules)
	require.Equal(t, hex.EncodeToString(sum[:]), def.ResolvedDependencies[3].Digest["sha256"])
	require.Contains(t, s.Predicate.RunDetails.Builder.ID, "maintainer-machine", "no service vouches for it")
}
