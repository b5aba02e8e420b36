// Command release makes what `make release` promises: for each platform an archive and an MCP
// bundle with the binary, the same bytes from the same commit on any machine, with checksums, bills
// of materials, the entry for the MCP registry and where all of it comes from; and signs it, with the
// key that it is given.
//
// What must stay true: nothing of this machine gets into a file. Times are the commit's, owners are
// nobody, paths are trimmed. The secret key is read by ssh-keygen and by nothing here.
package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/tools/go/packages"

	"x402-wallet/internal/attest"
)

// target is a platform the binary is promised for (SPEC §1).
type target struct{ os, arch string }

var targets = []target{{os: "linux", arch: "amd64"}, {os: "linux", arch: "arm64"},
	{os: "darwin", arch: "amd64"}, {os: "darwin", arch: "arm64"},
	{os: "windows", arch: "amd64"}, {os: "windows", arch: "arm64"}}

func (t target) String() string { return t.os + "-" + t.arch }

func (t target) binary() string {
	if t.os == "windows" {
		return "x402-wallet.exe"
	}
	return "x402-wallet"
}

// release is one release in the making.
type release struct {
	version   string    // without the v
	when      time.Time // the commit's
	publisher string    // the registry's name space, in reverse DNS
	url       string    // where the files will be served; each file's name is appended
	out       string
	root      string // the module's; "" is here

	commit   string
	signer   string      // the file of the key that signs; "" signs nothing
	key      string      // the public key that is compiled in, as attest has it; "" is none
	programs attest.Sums // of the binaries, by their places in the archives
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	r := &release{programs: attest.Sums{}}
	flags.StringVar(&r.version, "version", "", "what git describe says")
	flags.StringVar(&r.publisher, "publisher", "example.x402-wallet",
		"the MCP registry's name space, in reverse DNS")
	flags.StringVar(&r.url, "url", "https://mcp.x402-wallet.example/releases",
		"where the files will be served")
	flags.StringVar(&r.out, "out", "dist", "the directory to fill; what is in it goes")
	flags.StringVar(&r.signer, "key", "", "sign with this key: an Ed25519 key as OpenSSH keeps it")
	pub := flags.String("pubkey", "", "compile in this public key; the one of -key when not given")
	only := flags.String("only", "", "these platforms only, like linux-amd64,darwin-arm64")
	dry := flags.Bool("check", false, "build nothing: say what a platform's compiler would reject")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dry {
		return check(ctx, chosen(*only))
	}
	r.version = semver(r.version)
	stamp, err := output(ctx, nil, "git", "log", "-1", "--format=%cI")
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return err
	}
	r.when = at.UTC()
	if err := r.readSource(ctx, *pub); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // for everybody
		return err
	}
	return r.make(ctx, chosen(*only))
}

func chosen(only string) (list []target) {
	for _, t := range targets {
		if only == "" || strings.Contains(","+only+",", ","+t.String()+",") {
			list = append(list, t)
		}
	}
	return list
}

// make builds every target, then packs them: completions and pages are printed by this
// machine's own binary.
func (r *release) make(ctx context.Context, list []target) error {
	work, err := os.MkdirTemp("", "x402-wallet-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	here := target{os: runtime.GOOS, arch: runtime.GOARCH}
	program := func(t target) string { return filepath.Join(work, t.String(), t.binary()) }
	for _, t := range append(list, here) {
		fmt.Fprintln(os.Stderr, "build", t)
		if err := r.build(ctx, t, program(t)); err != nil {
			return err
		}
	}
	own := program(here)
	pages, err := pagesOf(ctx, own, filepath.Join(work, "man"))
	if err != nil {
		return err
	}
	made, err := buildinfo.ReadFile(own) // what is in it, not what go.mod would allow
	if err != nil {
		return err
	}
	licences, err := licencesOf(ctx, made)
	if err != nil {
		return err
	}
	docs, err := filepath.Glob("docs/*")
	if err != nil {
		return err
	}
	for _, path := range append(docs, "LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md") {
		// the README leads to the others
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pages = append(pages, file{name: filepath.ToSlash(path), body: text})
	}
	pages = append(pages, file{name: "LICENSES-OF-OTHERS.txt", body: licences})
	for _, t := range list {
		fmt.Fprintln(os.Stderr, "pack", t)
		body, err := os.ReadFile(program(t))
		if err != nil {
			return err
		}
		if made, err = buildinfo.Read(bytes.NewReader(body)); err != nil {
			return err
		}
		if err := r.checkSource(made); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		if err := r.pack(t, body, made, pages); err != nil {
			return err
		}
	}
	if err := r.finish(ctx, list); err != nil {
		return err
	}
	return r.sign(ctx)
}

// flags and settings are what decides what go build makes of a commit, besides its platform. Nothing
// of the environment that would change its bytes counts.
func (r *release) flags() []string {
	linked := "-s -w -buildid= -X main.version=" + r.version
	if r.key != "" {
		linked += " -X main.releaseKey=" + r.key
	}
	return []string{"-trimpath", "-buildvcs=true", "-ldflags", linked}
}

var settings = []string{"CGO_ENABLED=0", "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=",
	"GOFIPS140=off"}

// build makes one binary.
func (r *release) build(ctx context.Context, t target, to string) error {
	_, err := output(ctx, append([]string{"GOOS=" + t.os, "GOARCH=" + t.arch}, settings...), "go",
		append(append([]string{"build"}, r.flags()...), "-o", to, ".")...)
	return err
}

// semver is what git describe says as MCP bundles and registries want it: v1.2.3 is 1.2.3, and a
// commit that is no release comes before all releases.
func semver(described string) string {
	if rest, ok := strings.CutPrefix(described, "v"); ok && strings.Count(rest, ".") >= 2 {
		return rest
	}
	return "0.0.0-dev." + strings.ReplaceAll("g"+described, "-", ".")
}

// output runs a command, with more in its environment, and returns what it prints.
func output(ctx context.Context, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(cmd.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// pagesOf are completions and manual pages.
func pagesOf(ctx context.Context, binary, dir string) (list []file, err error) {
	for shell, name := range map[string]string{"bash": "x402-wallet.bash", "zsh": "_x402-wallet",
		"fish": "x402-wallet.fish", "powershell": "x402-wallet.ps1"} {
		text, err := output(ctx, nil, binary, "completion", shell)
		if err != nil {
			return nil, err
		}
		list = append(list, file{name: "completions/" + name, body: []byte(text + "\n")})
	}
	if _, err := output(ctx, nil, binary, "man", dir); err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		list = append(list, file{name: "man/" + filepath.Base(name), body: text})
	}
	return list, nil
}

// check reads the whole program, dependencies and all, as each platform's compiler would, and says
// what that would reject. It generates no code: a tenth of what a build takes.
func check(ctx context.Context, list []target) error {
	var all []error
	for _, t := range list {
		loaded, err := packages.Load(&packages.Config{
			Context: ctx, Mode: packages.LoadAllSyntax,
			Env: append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch),
		}, "x402-wallet")
		if err != nil {
			return err
		}
		packages.Visit(loaded, nil, func(p *packages.Package) {
			for _, e := range p.Errors {
				all = append(all, fmt.Errorf("%s: %w", t, e))
			}
		})
		fmt.Println(t)
	}
	return errors.Join(all...)
}
