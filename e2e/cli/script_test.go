package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"x402-wallet/app"
	"x402-wallet/e2e/schemes"
	"x402-wallet/e2e/testworld"
	"x402-wallet/facilitator"
	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/paywall"
	"x402-wallet/paywall/book"
	"x402-wallet/wallet"
	"x402-wallet/wallet/unlock"
)

// The command line is tested as people and programs use it: testdata/script tells stories, in which
// the real program runs as a process of its own against the sandbox's seller, facilitator and
// chains; terminal_test.go sits at a terminal.

func TestMain(m *testing.M) {
	testscript.Main(withProgram{m}, map[string]func(){"x402-wallet": func() {
		detach() // from the terminal of whoever runs the tests: the program would ask them
		if program := os.Getenv(programVariable); program != "" {
			become(program)
		}
		os.Exit(app.Main("0.1.0-dev"))
	}, "mcp-server": mcpServer, "mcp-loud": mcpLoud, "mcp-counter": mcpCounter})
}

// mcpServer is a paid MCP server on stdio, of whom the environment says.
func mcpServer() {
	var its struct{ Facilitator, PayTo string }
	if err := json.Unmarshal([]byte(os.Getenv("MCP_SERVER")), &its); err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stderr, "the environment says:", os.Getenv("CDP_API_KEY_SECRET"))
	price := []paywall.Option{{Network: sandbox.EVM, PayTo: its.PayTo, Price: "0.001"}}
	home, err := os.MkdirTemp("", "mcp-server")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(home)
	sold, err := book.Make(context.Background(), book.Place{Home: home})
	if err != nil {
		panic(err)
	}
	defer sold.Close()
	wall, err := paywall.New(paywall.Options{
		Tools: []paywall.Tool{{Name: "paid", Accepts: price}, {Name: "broken", Accepts: price}},
		Facilitators: facilitator.New(facilitator.Options{
			List: []facilitator.Facilitator{{Name: "sandbox", URL: its.Facilitator}}}),
		Store: sold,
	})
	if err != nil {
		panic(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	for _, name := range []string{"free", "paid", "broken"} {
		server.AddTool(&mcp.Tool{Name: name, Description: "the tool " + name,
			InputSchema: map[string]any{"type": "object"}},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{IsError: name == "broken",
					Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
			})
	}
	wall.Protect(server)
	_ = server.Run(context.Background(), &mcp.StdioTransport{})
}

// programVariable names the program, where it is not the test's own binary.
const programVariable = "X402_WALLET_TEST_PROGRAM"

// withProgram builds the program apart under the race detector, with which each unlocking takes ten
// times as long; what runs in parallel is tested for races in its own packages.
type withProgram struct{ *testing.M }

func (m withProgram) Run() int {
	// Under nohup, or behind a script's &, signals are ignored, and a program that is started inherits that.
	// What is caught here is not ignored there.
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || !slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) ||
		runtime.GOOS == "windows" {
		return m.M.Run()
	}
	dir, err := os.MkdirTemp("", "x402-wallet-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "x402-wallet")
	build := exec.Command("go", "build", "-o", program, "x402-wallet")
	// as everybody builds it, so that most of it is built already
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	os.Setenv(programVariable, program)
	return m.M.Run()
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   "../../testdata/script",
		Setup: setUp,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"wallet": scriptWallet, "seal": scriptSeal, "fund": scriptFund, "fault": scriptFault,
			"advance": scriptAdvance, "moved": scriptMoved, "signed": scriptSigned,
			"exits": scriptExits, "json": scriptJSON, "keys": scriptKeys, "let": scriptLet, "sql": scriptSQL,
		},
		Condition: func(name string) (bool, error) {
			if name == "root" { // who may write everywhere
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("no such condition: %s", name)
		},
		RequireUniqueNames: true,
	})
}

// command is the program's, by the name that testscript gave it. Its environment is what is given.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	return commandOf(t, env, "x402-wallet", args...)
}

// commandOf is command with another program, as a shell that starts ours.
func commandOf(t *testing.T, env []string, name string, args ...string) *exec.Cmd {
	t.Helper()
	program := must.Get(exec.LookPath(name))(t)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "LOG_LEVEL=error",
		programVariable + "=" + os.Getenv(programVariable)}, env...)
	return cmd
}

const testPassphrase = "correct horse battery"

// world is what is around a wallet: the sandbox, and a front to its seller that shows what arrives
// there and can sell odd things.
type world struct {
	*sandbox.Sandbox
	front     *httptest.Server
	held      chan struct{} // what is bought at the front's /held is answered when something is sent here
	home, evm string        // of a household's wallet
}

// newWorld waits for midnight where it is near: a budget's day begins then (UTC), and what a test
// paid before would not count after it.
func newWorld(o sandbox.Options) (*world, error) {
	now := time.Now()
	if left := now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now); left < 30*time.Second {
		time.Sleep(left)
	}
	o.Extend = schemes.WalletSettles
	s, err := sandbox.Start(o)
	if err != nil {
		return nil, err
	}
	seller, err := url.Parse(s.SellerURL)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"method": r.Method, "type": r.Header.Get("Content-Type"),
			"x": r.Header.Get("X-Test"), "body": string(body[:min(len(body), 100)]), "size": len(body)})
	})
	mux.HandleFunc("/evil", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, evilText) })
	for name, content := range map[string]string{"binary": "\x00\x01\xff\xfe\n\r\n", "evil": evilText,
		"ten":   strings.Repeat("ten megabytes ", 10_000_000/14),
		"large": strings.Repeat("large content ", largeSize/14)} {
		// the weather's price buys them
		mux.Handle("/sells/"+name, &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(seller); r.Out.URL.Path = "/weather" },
			ModifyResponse: func(r *http.Response) error {
				if r.StatusCode == http.StatusOK {
					r.Body.Close()
					body, size := io.Reader(strings.NewReader(content)), len(content)
					if r.Request.URL.Query().Has("twice") {
						body, size = io.MultiReader(body, strings.NewReader(content)), 2*size
					}
					r.Body, r.ContentLength = io.NopCloser(body), int64(size)
					r.Header.Set("Content-Length", strconv.Itoa(size))
					r.Header.Set("Content-Type", "application/x-"+name)
				}
				return nil
			},
		})
	}
	w := &world{Sandbox: s, held: make(chan struct{})}
	mux.Handle("/held", &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(seller); r.Out.URL.Path = "/weather" },
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode == http.StatusOK {
				select {
				case <-w.held:
				case <-r.Request.Context().Done(): // the buyer has gone
				}
			}
			return nil
		},
	})
	w.front = httptest.NewServer(mux)
	return w, nil
}

// atHeld is a purchase whose answer is held.
func (w *world) atHeld(query string) string { return w.front.URL + "/held?" + url.QueryEscape(query) }

func (w *world) release(t *testing.T) {
	t.Helper()
	select {
	case w.held <- struct{}{}:
	case <-time.After(time.Minute):
		require.FailNow(t, "nobody waits for an answer that is held")
	}
}

func (w *world) awaitSettlements(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(w.Settlements()) == n }, time.Minute, time.Millisecond)
}

// largeSize is about how many bytes the largest of what is sold has: half of the least quota.
const largeSize = 31 << 20

// evilText clears the screen, sets the window's title, turns text around and forges a line; its tab
// and newline are honest.
const evilText = "one\ttwo\n\x1b[2J\x1b]0;owned\x07\u202eevil\rpaid: nothing\u0085\n"

func (w *world) close() {
	w.front.Close()
	w.Close()
}

func (w *world) rules(r sandbox.Rules) string {
	return strings.Replace(w.Config(r), "loopback = [", fmt.Sprintf("loopback = [%q, ",
		w.front.Listener.Addr()), 1)
}

func (w *world) makeWallet(home string, r sandbox.Rules) (evm, solana string, err error) {
	return testworld.MakeHome(home, w.rules(r), testPassphrase)
}

func (w *world) configText(t *testing.T) string {
	t.Helper()
	return string(must.Get(os.ReadFile(filepath.Join(w.home, config.FileName)))(t))
}

// setConfig puts another one there, as whoever can write in the home can.
func (w *world) setConfig(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(w.home, config.FileName), []byte(text), 0o600))
}

// household is a world with a funded wallet in it, and the environment that names its home.
func household(t *testing.T, o sandbox.Options, r sandbox.Rules) (w *world, env []string) {
	t.Helper()
	return householdWith(t, o, func(w *world) string { return w.rules(r) })
}

// openHousehold is a household whose agent can unlock the wallet.
func openHousehold(t *testing.T, o sandbox.Options, r sandbox.Rules) (w *world, env []string) {
	w, env = household(t, o, r)
	return w, append(env, passphraseFile(t))
}

func householdWith(t *testing.T, o sandbox.Options, rules func(*world) string) (w *world, env []string) {
	t.Helper()
	w = must.Get(newWorld(o))(t)
	t.Cleanup(w.close)
	w.home = filepath.Join(t.TempDir(), "home")
	var err error
	w.evm, _, err = testworld.MakeHome(w.home, rules(w), testPassphrase)
	require.NoError(t, err)
	w.Fund(w.evm, sandbox.USDC)
	return w, []string{"X402_WALLET_HOME=" + w.home}
}

// passphraseFile is what the agent unlocks with; a person's decision it does not make.
func passphraseFile(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "passphrase")
	require.NoError(t, os.WriteFile(file, []byte(testPassphrase), 0o600))
	return "X402_WALLET_PASSPHRASE_FILE=" + file
}

func setUp(e *testscript.Env) error {
	w, err := newWorld(sandbox.Options{})
	if err != nil {
		return err
	}
	e.Defer(w.close)
	e.Values[world{}] = w
	home := filepath.Join(e.WorkDir, "home")
	for name, value := range map[string]string{
		"X402_WALLET_HOME": home, "HOME": e.WorkDir, "SELLER": w.SellerURL, "FRONT": w.front.URL,
		"NODE":  w.SolanaNodeURL,
		"PAYEE": w.PayToEVM, "FACILITATOR": w.FacilitatorURL, "PASSPHRASE": testPassphrase,
		"LOG_LEVEL": "warn", programVariable: os.Getenv(programVariable),
	} {
		e.Setenv(name, value)
	}
	for name, text := range map[string]string{"passphrase": testPassphrase + "\n",
		"rules.toml": w.rules(sandbox.Rules{})} {
		if err := os.WriteFile(filepath.Join(e.WorkDir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(e.WorkDir, "owner.json"), w.OwnerKeypair, 0o600)
}

func worldOf(ts *testscript.TestScript) *world { return ts.Value(world{}).(*world) }

// scriptSeal: seal PASSPHRASE-FILE is the owner who seals config.toml as it is.
func scriptSeal(ts *testscript.TestScript, _ bool, args []string) {
	home := ts.Getenv("X402_WALLET_HOME")
	keys, err := wallet.Open(home)
	ts.Check(err)
	defer keys.Close()
	keys.Sources = []wallet.Passphrase{unlock.File(ts.MkAbs(args[0]))}
	ts.Check(testworld.SealHome(home, keys))
}

// scriptWallet: wallet [session=0.002 per_call=… day=… approve_above=…] makes a wallet in the home
// that unlocks by a file.
func scriptWallet(ts *testscript.TestScript, _ bool, args []string) {
	var r sandbox.Rules
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		field, ok := map[string]*string{"session": &r.Session, "per_call": &r.PerCall, "day": &r.Day,
			"approve_above": &r.ApproveAbove}[name]
		if !ok {
			ts.Fatalf("no such rule: %s", name)
		}
		*field = value
	}
	evm, solana, err := worldOf(ts).makeWallet(ts.Getenv("X402_WALLET_HOME"), r)
	ts.Check(err)
	ts.Setenv("EVM", evm)
	ts.Setenv("SOLANA", solana)
	ts.Setenv("X402_WALLET_PASSPHRASE_FILE", ts.MkAbs("passphrase"))
}

// scriptFund: fund evm|solana|delegation UNITS gives the wallet play money.
func scriptFund(ts *testscript.TestScript, _ bool, args []string) {
	amount, err := strconv.ParseUint(args[1], 10, 64)
	ts.Check(err)
	w := worldOf(ts)
	switch args[0] {
	case "evm":
		w.Fund(ts.Getenv("EVM"), amount)
	case "solana":
		w.Fund(ts.Getenv("SOLANA"), amount)
	case "delegation":
		w.Delegate(ts.Getenv("SOLANA"), amount)
	default:
		ts.Fatalf("fund what?")
	}
}

// scriptFault: fault NAME makes it happen once, fault NAME always each time, and ! fault ends all. Names are
// those of the sandbox with dashes. A node is asked several things at once, and a fault that happens once
// happens to any of them.
func scriptFault(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		worldOf(ts).Heal()
		return
	}
	times := 1
	if len(args) > 1 && args[1] == "always" {
		times = math.MaxInt
	}
	worldOf(ts).Inject(strings.ReplaceAll(args[0], "-", " "), times)
}

// scriptAdvance: advance 90s puts the chains' clock forward.
func scriptAdvance(ts *testscript.TestScript, _ bool, args []string) {
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	worldOf(ts).Advance(d)
}

// scriptMoved: moved N says how many payments the chains have made; what the wallet says of it
// proves nothing.
func scriptMoved(ts *testscript.TestScript, _ bool, args []string) {
	if n := len(worldOf(ts).Settlements()); strconv.Itoa(n) != args[0] {
		ts.Fatalf("the chains made %d payments", n)
	}
}

// scriptSigned: signed N says how many different signed payments ever reached anybody.
func scriptSigned(ts *testscript.TestScript, _ bool, args []string) {
	if n := worldOf(ts).Signatures(); strconv.Itoa(n) != args[0] {
		ts.Fatalf("%d payments were signed", n)
	}
}

// scriptExits: exits CODE COMMAND… runs a command that must end with that exit code.
func scriptExits(ts *testscript.TestScript, _ bool, args []string) {
	code := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d", code)
	}
}

// scriptJSON: json FILE PATH [VALUE] compares what stands at a path like .transactions.0.status,
// text as it is and anything else as JSON; without a value it must be there.
func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	value, found := at(ts, args[0], args[1])
	is := found
	if len(args) > 2 {
		is = found && shown(value) == args[2]
	}
	if is == neg {
		ts.Fatalf("%s is %s", args[1], shown(value))
	}
}

// scriptKeys: keys FILE PATH NAME… compares an object's keys with the names; those with a ? may be missing.
func scriptKeys(ts *testscript.TestScript, _ bool, args []string) {
	value, _ := at(ts, args[0], args[1])
	object, ok := value.(map[string]any)
	if !ok {
		ts.Fatalf("%s is no object: %s", args[1], shown(value))
	}
	var known []string
	for _, name := range args[2:] {
		name, optional := strings.CutSuffix(name, "?")
		known = append(known, name)
		if _, there := object[name]; !there && !optional {
			ts.Fatalf("%s has no %q", args[1], name)
		}
	}
	for name := range object {
		if !slices.Contains(known, name) {
			ts.Fatalf("%s has %q", args[1], name)
		}
	}
}

// scriptLet: let NAME FILE PATH sets a variable.
func scriptLet(ts *testscript.TestScript, _ bool, args []string) {
	value, found := at(ts, args[1], args[2])
	if !found {
		ts.Fatalf("there is no %s", args[2])
	}
	ts.Setenv(args[0], shown(value))
}

func at(ts *testscript.TestScript, file, path string) (value any, found bool) {
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(file)))
	ts.Check(d.Decode(&value))
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		ts.Fatalf("%s is more than one JSON document", file)
	}
	for _, step := range strings.Split(strings.Trim(path, "."), ".") {
		if step == "" {
			continue
		}
		found = false
		switch at := value.(type) {
		case map[string]any:
			value, found = at[step]
		case []any:
			if i, err := strconv.Atoi(step); err == nil && i < len(at) {
				value, found = at[i], true
			}
		}
		if !found {
			return nil, false
		}
	}
	return value, true
}

func shown(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	text, _ := json.Marshal(value)
	return string(text)
}
