// Package testlab starts e2e/lab, and is its Go side: real chains, reference facilitators, sellers and payers
// on this machine's loopback. Only tests import it.
//
// What must stay true: balances, spent nonces and logs come from the chains and the parties, through the
// reference libraries, never from anything that the wallet says of itself.
package testlab

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
)

const (
	// StartWait bounds the start of a script: 3 s on an idle machine, half a minute on one that compiles.
	StartWait = 2 * time.Minute
	StopWait  = time.Minute
	// OpWait bounds one operation. The slowest is a first payment of the V1 payer, which loads its libraries.
	OpWait = 3 * time.Minute
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
	PayTo                              string // payee of the reference sellers
	Facilitator                        string // who sends the facilitator's transactions
	Client                             struct{ Address, Key string }
}

// SVMFacts describes the Solana chain. Mint is an SPL Token mint, Mint2022 a Token-2022 mint, both
// of 6 decimals.
type SVMFacts struct {
	URL, Network, Mint, Mint2022, PayTo, OzskrPayTo string
}

// Lab is a running lab as one test sees it: an operation that fails ends that test. Operations may
// be called from several goroutines of the test, but as with every Fatal a failure is only reported
// well on the test's own.
type Lab struct {
	Facts
	t testing.TB
}

var shared struct {
	once  sync.Once
	lab   *Script
	facts Facts
	err   error
}

// Start gives the lab of this test process and starts it when it is the first to ask. The test
// fails if the lab has not been prepared or does not come up; it never skips, because a proof that
// did not run proves nothing.
func Start(t testing.TB) *Lab {
	t.Helper()
	shared.once.Do(func() { shared.lab, shared.err = Run("up.mjs", &shared.facts) })
	if shared.err != nil {
		t.Fatalf("start the lab: %v", shared.err)
	}
	return &Lab{Facts: shared.facts, t: t}
}

func (l *Lab) For(t testing.TB) *Lab { return &Lab{Facts: l.Facts, t: t} }

// Stop stops the shared lab. A test process that dies without it leaves no process behind
// either: the lab ends with its standard input.
func Stop() {
	if shared.lab != nil {
		shared.lab.Stop()
	}
}

// Script is a program of the lab, running.
type Script struct {
	*exec.Cmd
	Log  *testworld.Tail
	Stop func() // ends its input, and with that the script
}

// Path is where a file of the lab lies, for tests in e2e and in its folders.
func Path(file string) string {
	if _, err := os.Stat("lab"); err == nil {
		return filepath.Join("lab", file)
	}
	return filepath.Join("..", "lab", file)
}

// Run starts a script of the lab, and reads the one line of JSON that it says when it is ready.
func Run(file string, ready any, args ...string) (*Script, error) {
	s := &Script{Cmd: exec.Command("node", append([]string{Path(file)}, args...)...), Log: &testworld.Tail{}}
	s.WaitDelay, s.Stderr = StopWait, s.Log
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
	s.Stop = func() {
		_ = stdin.Close()
		late := time.AfterFunc(StopWait, kill)
		_ = s.Wait()
		late.Stop()
	}
	late := time.AfterFunc(StartWait, kill)
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	late.Stop()
	if err == nil {
		err = json.Unmarshal(line, ready)
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("%w: %s; run make test (or e2e/lab/prep.sh) first", err, s.Log)
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	return s, nil
}

// StartParty runs a script with options until the test ends; ready is where it says what it serves.
func StartParty(t testing.TB, file string, options, ready any) {
	t.Helper()
	text, err := json.Marshal(options)
	require.NoError(t, err)
	s, err := Run(file, ready, string(text))
	require.NoError(t, err)
	t.Cleanup(s.Stop)
}

// opClient takes a new connection for each operation. A test may wait between two of them, and the lab would
// close a kept connection just as the next operation is written.
var opClient = &http.Client{Timeout: OpWait, Transport: &http.Transport{DisableKeepAlives: true}}

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
		if host := HostPort(at); !slices.Contains(hosts, host) {
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

func HostPort(at string) string {
	if parsed, err := url.Parse(at); err == nil && parsed.Host != "" {
		return parsed.Host
	}
	return at
}
