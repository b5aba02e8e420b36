// Package e2e proves the wallet against programs that are not ours: real chains, reference
// facilitators, sellers and payers, started from e2e/lab on this machine's loopback, and the real
// wallet binary driven through its standard input and output.
//
// What must stay true: the wallet is judged by the others' records. Balances, spent nonces and logs
// come from the chains and the parties, through the reference libraries, never from anything the
// wallet says of itself.
package e2e

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

const (
	// about 3 s on an idle machine, half a minute was seen on one that compiles and fuzzes
	startWait = 2 * time.Minute
	stopWait  = time.Minute
	// the slowest operation, a first payment of the V1 payer, loads its libraries for seconds
	opWait = 3 * time.Minute
)

// Facts says what there is in a lab and where.
type Facts struct {
	EVM          EVMFacts `json:"evm"`
	SVM          SVMFacts `json:"svm"`
	Facilitators []string `json:"facilitators"` // URLs, in order
	// x402 V2: /evm /svm /svm2022 /multi /evm/expensive /fail500 /upfront500 /echo /free
	Seller   string `json:"seller"`
	SellerV1 string `json:"sellerV1"` // x402 V1: /v1/evm /v1/svm /free
	// the payer settles: /ozskr/v2 /ozskr/v2evm /ozskr/v1 /ozskr/v1evm /free
	SellerOzskr string         `json:"sellerOzskr"`
	Control     string         `json:"control"` // where operations go
	PIDs        map[string]int `json:"pids"`
	StartMS     int            `json:"startMs"`
}

// EVMFacts describes the EVM chain. Name and Version are those of the token's EIP-712 domain.
type EVMFacts struct {
	URL, Network, Asset, Name, Version string
	PayTo, OzskrPayTo                  string // payees of the reference sellers and of sellerOzskr
	Facilitator                        string // who sends the facilitator's transactions
	Client                             struct{ Address, Key string }
}

// SVMFacts describes the Solana chain. Mint is an SPL Token mint, Mint2022 a Token-2022 mint, both
// of 6 decimals.
type SVMFacts struct {
	URL, Network, Mint, Mint2022, PayTo, OzskrPayTo string
	Facilitator                                     string // the fee payer
	Client                                          struct{ Address string }
}

// Lab is a running lab as one test sees it: an operation that fails ends that test. Operations may
// be called from several goroutines of the test, but as with every Fatal a failure is only reported
// well on the test's own.
type Lab struct {
	Facts
	t testing.TB
}

const labScript = "lab/up.mjs"

var shared struct {
	once  sync.Once
	lab   *script
	facts Facts
	err   error
}

// Start gives the lab of this test process and starts it when it is the first to ask. The test
// fails if the lab has not been prepared or does not come up; it never skips, because a proof that
// did not run proves nothing.
func Start(t testing.TB) *Lab {
	t.Helper()
	shared.once.Do(func() { shared.lab, shared.err = runScript(labScript, &shared.facts) })
	if shared.err != nil {
		t.Fatalf("start the lab: %v", shared.err)
	}
	return &Lab{Facts: shared.facts, t: t}
}

func (l *Lab) For(t testing.TB) *Lab { return &Lab{Facts: l.Facts, t: t} }

// stopLab stops the shared lab. A test process that dies without it leaves no process behind
// either: the lab ends with its standard input.
func stopLab() {
	if shared.lab != nil {
		shared.lab.stop()
	}
}

type script struct {
	*exec.Cmd
	log  *tail
	stop func() // ends its input, and with that the script
}

// runScript starts a script, and reads the one line of JSON that it says when it is ready.
func runScript(path string, ready any, args ...string) (*script, error) {
	s := &script{Cmd: exec.Command("node", append([]string{path}, args...)...), log: &tail{}}
	s.WaitDelay, s.Stderr = stopWait, s.log
	stdin, err := s.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := s.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.Start(); err != nil {
		return nil, err
	}
	kill := func() { _ = s.Process.Kill() }
	s.stop = func() {
		_ = stdin.Close()
		late := time.AfterFunc(stopWait, kill)
		_ = s.Wait()
		late.Stop()
	}
	late := time.AfterFunc(startWait, kill)
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	late.Stop()
	if err == nil {
		err = json.Unmarshal(line, ready)
	}
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("%w: %s; run make test (or e2e/lab/prep.sh) first", err, s.log)
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	return s, nil
}

func startScript(path string, options []byte, ready any) (stop func(), err error) {
	s, err := runScript(path, ready, string(options))
	if err != nil {
		return nil, err
	}
	return s.stop, nil
}

// opClient takes a new connection for each operation. A test may wait between two of them, and the lab would
// close a kept connection just as the next operation is written.
var opClient = &http.Client{Timeout: opWait, Transport: &http.Transport{DisableKeepAlives: true}}

// op calls one of the lab's operations (e2e/lab/parties/control.mjs). out may be nil.
func (l *Lab) op(name string, in, out any) {
	l.t.Helper()
	if err := l.tryOp(name, in, out); err != nil {
		l.t.Fatalf("lab %s: %v", name, err)
	}
}

func (l *Lab) tryOp(name string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	response, err := opClient.Post(l.Control+"/lab/"+name, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%d %s", response.StatusCode, answer)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

type ConfigOptions struct {
	Budget       string   // lines of [budget]
	Policy       string   // further lines of [policy]
	TokenAccount string   // the owner's token account on Solana; empty: none is named
	Vault        string   // the owner's vault on EVM; empty: none is named
	Owner        string   // the owner's account on EVM that a float is taken from; empty: none is named
	Float        string   // how much at a time; empty: the wallet's own default
	ApprovalGas  string   // what an approval that a seller sends may cost on EVM; empty: none is signed
	Facilitators []string // URLs in order; nil: the lab's
	Loopback     []string // further URLs or host:port entries that plain http is allowed for
	More         string   // further tables
}

// Config is a config.toml for a wallet in this lab: its chains, its facilitators as lab0, lab1, …,
// and everybody's exact host and port allowed on loopback.
func (l *Lab) Config(options ConfigOptions) string {
	facilitators := options.Facilitators
	if facilitators == nil {
		facilitators = l.Facilitators
	}
	var hosts []string
	known := []string{l.Seller, l.SellerV1, l.SellerOzskr, l.EVM.URL, l.SVM.URL}
	for _, at := range slices.Concat(known, l.Facilitators, facilitators, options.Loopback) {
		if host := hostPort(at); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}

	var b strings.Builder
	table := func(head string, lines ...string) {
		fmt.Fprintf(&b, "%s\n%s\n\n", head, strings.TrimSpace(strings.Join(lines, "\n")))
	}
	set := func(key, value string) string { return fmt.Sprintf("%s = %q", key, value) }

	table("[budget]", options.Budget)
	table("[policy]", fmt.Sprintf("loopback = [\"%s\"]", strings.Join(hosts, `", "`)), options.Policy)
	evm := []string{set("rpc", l.EVM.URL)}
	if options.Vault != "" {
		evm = append(evm, set("vault", options.Vault))
	}
	if options.Owner != "" {
		evm = append(evm, set("allowance_from", options.Owner))
	}
	if options.Float != "" {
		evm = append(evm, set("float", options.Float))
	}
	if options.ApprovalGas != "" {
		evm = append(evm, set("approval_gas", options.ApprovalGas))
	}
	table(fmt.Sprintf("[networks.%q]", l.EVM.Network), evm...)
	svm := []string{set("rpc", l.SVM.URL)}
	if options.TokenAccount != "" {
		svm = append(svm, set("token_account", options.TokenAccount))
	}
	table(fmt.Sprintf("[networks.%q]", l.SVM.Network), svm...)
	for i, at := range facilitators {
		table("[[facilitators]]", set("name", fmt.Sprintf("lab%d", i)), set("url", at), set("auth", "none"))
	}
	b.WriteString(options.More)
	return b.String()
}

func hostPort(at string) string {
	if parsed, err := url.Parse(at); err == nil && parsed.Host != "" {
		return parsed.Host
	}
	return at
}

const price = 1000 // of everything in the lab that is not dear on purpose

// TestLabEnds proves that a lab leaves no process behind, not even when it is killed.
func TestLabEnds(t *testing.T) {
	var facts Facts
	lab := must.Get(runScript(labScript, &facts))(t)
	t.Cleanup(lab.stop)
	require.Contains(t, facts.PIDs, "anvil")
	require.NoError(t, lab.Process.Kill())
	for name, pid := range facts.PIDs {
		assert.Eventually(t, func() bool { return !alive(pid) }, time.Minute, 20*time.Millisecond, name)
	}
}

// TestLockFilesNameNoRegistry: a lock file with download addresses would bind everybody to the
// registry of whoever wrote it.
func TestLockFilesNameNoRegistry(t *testing.T) {
	// a path, as of a package that lies beside, is none
	address := regexp.MustCompile(`"resolved": "[a-z+]+:`)
	seen := 0
	require.NoError(t, filepath.WalkDir("lab", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err == nil && entry.Name() == "package-lock.json" {
			seen++
			assert.NotRegexp(t, address, string(must.Get(os.ReadFile(path))(t)), path)
		}
		return err
	}))
	assert.NotZero(t, seen)
}

func (l *Lab) evmTime(t *testing.T, tag string) int64 {
	t.Helper()
	var block struct{ Result struct{ Timestamp string } }
	call := `{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["` + tag + `",false]}`
	response := must.Get(http.Post(l.EVM.URL, "application/json", strings.NewReader(call)))(t)
	require.NoError(t, json.Unmarshal([]byte(bodyOf(t, response)), &block))
	return must.Get(strconv.ParseInt(block.Result.Timestamp, 0, 64))(t)
}

// alive tells whether a process runs. One that has ended and that nobody waited for, as in a
// container without an init, does not.
func alive(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		return !strings.Contains(string(stat), ") Z ")
	}
	process, err := os.FindProcess(pid)
	return err == nil && process.Signal(syscall.Signal(0)) == nil
}

type ozskrOffer struct{ Network, Amount, Asset, PayTo string }

func challenge(t *testing.T, header string) []ozskrOffer {
	t.Helper()
	decoded := must.Get(base64.StdEncoding.DecodeString(header))(t)
	required := must.JSON[struct {
		X402Version int
		Accepts     []ozskrOffer
	}](decoded)(t)
	require.Equal(t, 2, required.X402Version)
	require.NotEmpty(t, required.Accepts)
	return required.Accepts
}

func get(t *testing.T, at string, headers ...string) *http.Response {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil))(t)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response := must.Get(http.DefaultClient.Do(request))(t)
	bodyOf(t, response)
	return response
}

func bodyOf(t *testing.T, response *http.Response) string {
	t.Helper()
	defer response.Body.Close()
	return string(must.Get(io.ReadAll(response.Body))(t))
}

func opsOf(calls []FacilitatorCall) []string {
	ops := []string{}
	for _, call := range calls {
		ops = append(ops, call.Op)
	}
	return ops
}
