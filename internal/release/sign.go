package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"

	"x402-wallet/internal/attest"
)

// readSource finds what the release is made of: the commit, and the public key that is compiled in.
// What is signed is of a commit: a tree with changes of its own is refused.
func (r *release) readSource(ctx context.Context, pub string) (err error) {
	r.commit, err = output(ctx, nil, "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if pub == "" && r.signer != "" {
		pub = strings.TrimSuffix(r.signer, ".pub") + ".pub"
	}
	if pub == "" {
		return nil
	}
	text, err := os.ReadFile(pub)
	if err != nil {
		return err
	}
	key, err := attest.ParseKey(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w; make one with: ssh-keygen -t ed25519 -f FILE", pub, err)
	}
	r.key = key.String()
	if r.signer == "" {
		return nil
	}
	changed, err := output(ctx, nil, "git", "status", "--porcelain")
	if err == nil && changed != "" {
		err = errors.New("the tree has changes that are in no commit: nothing is signed")
	}
	return err
}

// checkSource compares what a binary says of its source with what will be signed. Go says nothing in
// a git worktree, for one.
func (r *release) checkSource(made *debug.BuildInfo) error {
	said := map[string]string{}
	for _, s := range made.Settings {
		said[s.Key] = s.Value
	}
	if r.signer == "" || (said["vcs.revision"] == r.commit && said["vcs.modified"] == "false") {
		return nil
	}
	return fmt.Errorf("the binary says that it was made from %q (changed: %q), not from the commit %s: "+
		"nothing is signed; release from a clone", said["vcs.revision"], said["vcs.modified"], r.commit)
}

// provenance is the statement about all files: made from this commit, by these commands.
func (r *release) provenance(ctx context.Context, sums attest.Sums, list []target) ([]byte, error) {
	version, err := output(ctx, nil, "go", "env", "GOVERSION")
	if err != nil {
		return nil, err
	}
	var platforms []string
	for _, t := range list {
		platforms = append(platforms, t.String())
	}
	others := []attest.Resource{{Name: "go", Annotations: map[string]string{"version": version}}}
	for _, name := range []string{"go.mod", "go.sum"} {
		sum, err := sumOf(filepath.Join(r.root, name))
		if err != nil {
			return nil, err
		}
		others = append(others, attest.Resource{Name: name, Digest: map[string]string{"sha256": sum}})
	}
	return indented(attest.NewStatement(sums, r.commit, map[string]string{
		"version": r.version, "platforms": strings.Join(platforms, ","), "publisher": r.publisher,
		"url": r.url, "releaseKey": r.key,
	}, map[string]string{"flags": strings.Join(r.flags(), " "), "environment": strings.Join(settings, " ")},
		others...))
}

// sign has ssh-keygen sign the checksums: it asks for the key's passphrase, or an agent or a hardware
// key where the public key was named. Then the signature is checked as a wallet will check it.
func (r *release) sign(ctx context.Context) error {
	if r.signer == "" {
		fmt.Fprintln(os.Stderr, "not signed: give the key with KEY=FILE")
		return nil
	}
	sums := filepath.Join(r.out, attest.SumsName)
	//nolint:gosec // the key is the owner's own
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-Y", "sign", "-f", r.signer, "-n", attest.Namespace, sums)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ssh-keygen -Y sign: %w", err)
	}
	text, err := os.ReadFile(sums)
	if err != nil {
		return err
	}
	signature, err := os.ReadFile(filepath.Join(r.out, attest.SignatureName))
	if err != nil {
		return err
	}
	key, err := attest.ParseKey(r.key)
	if err == nil {
		err = key.Verify(text, signature)
	}
	if err != nil {
		_ = os.Remove(filepath.Join(r.out, attest.SignatureName))
		return fmt.Errorf("the signature that was made does not count, and is removed: %w", err)
	}
	fmt.Fprintln(os.Stderr, "signed with", key.Fingerprint())
	return nil
}
