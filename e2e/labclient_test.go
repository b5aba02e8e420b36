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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const (
	// about 3 s on an idle machine, half a minute was seen on one that compiles and fuzzes
	startWait = 2 * time.Minute
	stopWait  = 10 * time.Second
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
	// the payer settles: /seed/v2 /seed/v2evm /seed/v1 /seed/v1evm /free
	SellerSeed string         `json:"sellerSeed"`
	Control    string         `json:"control"` // where operations go
	PIDs       map[string]int `json:"pids"`
	StartMS    int            `json:"startMs"`
}

// EVMFacts describes the EVM chain. Name and Version are those of the token's EIP-712 domain.
type EVMFacts struct {
	URL, Network, Asset, Name, Version string
	PayTo, SeedPayTo                   string // payees of the reference sellers and of sellerSeed
	Facilitator                        string // who sends the facilitator's transactions
	Client                             struct{ Address, Key string }
}

// SVMFacts describes the Solana chain. Mint is an SPL Token mint, Mint2022 a Token-2022 mint, both
// of 6 decimals.
type SVMFacts struct {
	URL, Network, Mint, Mint2022 string
	PayTo, SeedPayTo             string
	Facilitator                  string // the fee payer
	Client                       struct{ Address string }
}

// Lab is a running lab as one test sees it: an operation that fails ends that test. Operations may
// be called from several goroutines of the test, but as with every Fatal a failure is only reported
// well on the test's own.
type Lab struct {
	Facts
	t testing.TB
}

// shared is the lab of this test process.
var shared struct {
	once sync.Once
	lab  *process
	err  error
}

// Start gives the lab of this test process and starts it when it is the first to ask. The test
// fails if the lab has not been prepared or does not come up; it never skips, because a proof that
// did not run proves nothing.
func Start(t testing.TB) *Lab {
	t.Helper()
	shared.once.Do(func() { shared.lab, shared.err = startProcess() })
	if shared.err != nil {
		t.Fatalf("start the lab: %v", shared.err)
	}
	return &Lab{Facts: shared.lab.facts, t: t}
}

// For gives the same lab to another test, such as a subtest.
func (l *Lab) For(t testing.TB) *Lab { return &Lab{Facts: l.Facts, t: t} }

// stopLab stops the shared lab. A test process that dies without it leaves no process behind
// either: the lab ends with its standard input.
func stopLab() {
	if shared.lab != nil {
		shared.lab.stop()
	}
}

// process is a running e2e/lab/up.mjs.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr *tail
	facts  Facts
	ended  chan struct{}
}

func startProcess() (*process, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("the lab needs Node.js 20 or newer; then run make test (or "+
			"e2e/lab/prep.sh) first: %w", err)
	}

	cmd := exec.Command(node, filepath.Join("lab", "up.mjs"))
	p := &process{cmd: cmd, stderr: &tail{}, ended: make(chan struct{})}
	cmd.Stderr = p.stderr
	cmd.WaitDelay = stopWait
	p.stdin, err = cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}

	line := make(chan []byte, 1)
	go func() {
		first, _ := bufio.NewReader(stdout).ReadBytes('\n')
		line <- first
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
		close(p.ended)
	}()
	select {
	case first := <-line:
		if err := json.Unmarshal(first, &p.facts); err != nil {
			p.stop()
			return nil, errors.New(p.stderr.String())
		}
		return p, nil
	case <-time.After(startWait):
		p.stop()
		return nil, fmt.Errorf("not ready within %v: %s", startWait, p.stderr)
	}
}

// stop ends the lab and waits for it; its parts end with it.
func (p *process) stop() {
	_ = p.stdin.Close()
	select {
	case <-p.ended:
	case <-time.After(stopWait):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

var opClient = &http.Client{Timeout: opWait}

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
