// Package vault proves the contract of the owner's vault (chain/evm/vault/AgentVault.sol) on real
// chains: that its committed build is what its source compiles to, that it is its model, that no
// signature makes it fail, and that these proofs can fail. Package e2e pays from it through the
// reference facilitator.
//
// Nothing here is the wallet's: addresses, digests and calls are made by hand, so that the wallet's
// own code can be judged by them.
package vault

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"
)

const (
	startWait  = 2 * time.Minute // anvil takes a moment on an idle machine, far longer on a busy one
	answerWait = time.Minute
)

// Chain is an EVM node that knows anvil's methods, and a token of EIP-3009 on it.
type Chain struct {
	URL    string
	Token  common.Address
	Domain [32]byte // the token's DOMAIN_SEPARATOR
}

// Call is a message to a contract.
type Call struct {
	From common.Address  `json:"from"`
	To   *common.Address `json:"to"`
	Data hexutil.Bytes   `json:"data"`
	Gas  hexutil.Uint64  `json:"gas,omitempty"`
}

// Outcome is what became of a call. Result is its answer; where it failed, the reason it gave.
type Outcome struct {
	OK     bool
	Result []byte
}

// New gives a node that runs already, whose token is there.
func New(url string, token common.Address) (*Chain, error) {
	c := &Chain{URL: url, Token: token}
	domain, err := c.View(token, "DOMAIN_SEPARATOR()")
	if err == nil && len(domain) != 32 {
		err = fmt.Errorf("no domain at %s", token)
	}
	copy(c.Domain[:], domain)
	return c, err
}

// Start runs an anvil of its own, with the lab's token on it. lab is the way to e2e/lab, which has
// to be prepared.
func Start(t testing.TB, lab string) *Chain {
	t.Helper()
	arch := runtime.GOOS + "-" + runtime.GOARCH
	anvil := filepath.Join(lab, "chain/node_modules/@foundry-rs/anvil-"+arch, "bin/anvil")
	// The shell ends anvil when its input ends, so that it outlives no test process, not even one
	// that was killed.
	cmd := exec.Command("sh", "-c", `"$0" "$@" </dev/null & pid=$!; read -r _; kill $pid; wait`, anvil,
		"--host", "127.0.0.1", "--port", "0", "--chain-id", "84532")
	input, err := cmd.StdinPipe()
	require.NoError(t, err)
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
	})

	port := make(chan string, 1)
	go func() {
		listening := regexp.MustCompile(`Listening on 127\.0\.0\.1:(\d+)`)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if found := listening.FindStringSubmatch(lines.Text()); found != nil {
				port <- found[1]
				_, _ = io.Copy(io.Discard, output)
			}
		}
		close(port)
	}()
	c := &Chain{}
	select {
	case found := <-port:
		require.NotEmpty(t, found, "anvil does not start; is the lab prepared (e2e/lab/prep.sh)?")
		c.URL = "http://127.0.0.1:" + found
	case <-time.After(startWait):
		require.Fail(t, "anvil does not start")
	}

	var token struct{ Code string }
	require.NoError(t, readJSON(filepath.Join(lab, "contracts/TestUSDC.json"), &token))
	at := common.HexToAddress("0x036CbD53842c5426634e7929541eC2318f3dCF7e")
	require.NoError(t, c.Ask(nil, "anvil_setCode", at, token.Code))
	initialize := Data("initialize(string,string)", 2*32, 4*32, []byte("USDC"), []byte("2"))
	_, err = c.Send(Call{From: at, To: &at, Data: initialize})
	require.NoError(t, err)
	c, err = New(c.URL, at)
	require.NoError(t, err)
	return c
}

// Ask asks the node one question. out may be nil.
func (c *Chain) Ask(out any, method string, params ...any) error {
	question, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method,
		"params": params})
	if err != nil {
		return err
	}
	client := http.Client{Timeout: answerWait}
	response, err := client.Post(c.URL, "application/json", bytes.NewReader(question))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Result json.RawMessage
		Error  *struct{ Message string }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("%s: %s", method, answer.Error.Message)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer.Result, out)
}

// View asks a contract, in the latest block.
func (c *Chain) View(to common.Address, signature string, args ...any) (answer []byte, err error) {
	call := Call{To: &to, Data: Data(signature, args...)}
	err = c.Ask((*hexutil.Bytes)(&answer), "eth_call", call, "latest")
	return answer, err
}

// Receipt is what became of a transaction.
type Receipt struct {
	Status, GasUsed hexutil.Uint64
	Logs            []Log
}

type Log struct {
	Address common.Address
	Topics  []common.Hash
	Data    hexutil.Bytes
}

// Send has a transaction mined, from an account that need not have a key or a coin.
func (c *Chain) Send(call Call) (Receipt, error) {
	if err := c.Ask(nil, "anvil_impersonateAccount", call.From); err != nil {
		return Receipt{}, err
	}
	if err := c.Ask(nil, "anvil_setBalance", call.From, "0xde0b6b3a7640000"); err != nil {
		return Receipt{}, err
	}
	if call.Gas == 0 {
		call.Gas = 3_000_000
	}
	var receipt Receipt
	err := c.Ask(&receipt, "eth_sendTransactionSync", call)
	return receipt, err
}

// Block is what happens at one moment, in Unix seconds.
type Block struct {
	At    uint64
	Calls []Call
}

// Simulate runs blocks one upon the other in the node's own EVM, upon the latest state, and keeps
// nothing of them.
func (c *Chain) Simulate(blocks []Block) ([][]Outcome, error) {
	type block struct {
		BlockOverrides struct {
			Time hexutil.Uint64 `json:"time"`
		} `json:"blockOverrides"`
		Calls []Call `json:"calls"`
	}
	asked := make([]block, len(blocks))
	for i, b := range blocks {
		asked[i].BlockOverrides.Time, asked[i].Calls = hexutil.Uint64(b.At), b.Calls
	}
	var answer []struct {
		Calls []struct {
			Status     hexutil.Uint64
			ReturnData hexutil.Bytes
			Error      *struct{ Message string }
		}
	}
	question := map[string]any{"blockStateCalls": asked}
	if err := c.Ask(&answer, "eth_simulateV1", question, "latest"); err != nil {
		return nil, err
	}
	outcomes := make([][]Outcome, len(answer))
	for i, b := range answer {
		for _, call := range b.Calls {
			outcomes[i] = append(outcomes[i], Outcome{call.Status == 1, call.ReturnData})
		}
	}
	return outcomes, nil
}
