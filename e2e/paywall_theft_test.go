package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/e2e/testworld"
	"x402-wallet/x402"
)

// stall is a paywall in the lab, in front of a tool that waits as long as its file hold exists.
type stall struct {
	testworld.Home
	client *mcp.ClientSession
	hold   string
	runs   string
}

func newStall(t *testing.T, lab *Lab, payTo string) *stall {
	t.Helper()
	dir := t.TempDir()
	s := &stall{Home: testworld.NewHome(t, lab.Config(ConfigOptions{})), runs: filepath.Join(dir, "runs"),
		hold: filepath.Join(dir, "runs.hold")}
	own, err := os.Executable()
	require.NoError(t, err)
	file := filepath.Join(dir, "shop.toml")
	writePrivate(t, file, fmt.Sprintf("command = [\"/usr/bin/env\", %q, %q]\nnetwork = %q\npay_to = %q\n"+
		"[tools.search]\nprice = \"0.001\"\n", behindEnv+"="+s.runs, own, lab.EVM.Network, payTo))
	command := s.Command(context.Background(), testworld.Build(t), "paywall", "--config", file)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	s.client, err = mcp.NewClient(&mcp.Implementation{Name: "buyer"}, nil).Connect(t.Context(),
		&mcp.CommandTransport{Command: command}, nil)
	require.NoError(t, err, "%s", &stderr)
	t.Cleanup(func() { s.client.Close() })
	return s
}

// buy calls the tool; while it runs, meanwhile is called.
func (s *stall) buy(t *testing.T, payment json.RawMessage, meanwhile func()) (text string, failed bool) {
	t.Helper()
	params := &mcp.CallToolParams{Name: "search"}
	if payment != nil {
		params.Meta = mcp.Meta{"x402/payment": payment}
	}
	if meanwhile != nil {
		writePrivate(t, s.hold, "")
	}
	type ending struct {
		result *mcp.CallToolResult
		err    error
	}
	done := make(chan ending, 1)
	go func() {
		result, err := s.client.CallTool(t.Context(), params)
		done <- ending{result, err}
	}()
	if meanwhile != nil {
		require.Eventually(t, func() bool { _, err := os.Stat(s.runs); return err == nil }, time.Minute,
			10*time.Millisecond, "the tool runs")
		meanwhile()
		require.NoError(t, os.Remove(s.hold))
	}
	end := <-done
	var refused *jsonrpc.Error
	if errors.As(end.err, &refused) {
		return refused.Message + string(refused.Data), true
	}
	require.NoError(t, end.err)
	said, err := json.Marshal(end.result)
	require.NoError(t, err)
	return string(said), end.result.IsError
}

// thief is a buyer that can sign two payments with one nonce.
type thief struct {
	*evm.Exact
	lab   *Lab
	asset x402.AssetInfo
}

type oneNonce struct{}

func (oneNonce) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte{7}, len(p))), nil }

func newThief(t *testing.T, lab *Lab) *thief {
	t.Helper()
	b := &thief{lab: lab, Exact: evm.New(evm.Options{Signer: testworld.NewEVMKey(t), Rand: oneNonce{},
		RPC: map[string]string{lab.EVM.Network: lab.EVM.URL}})}
	b.asset, _ = x402.NewRegistry(nil).Named(lab.EVM.Network, "")
	lab.EVMMint(b.Address(), 1_000_000)
	return b
}

// sign makes the payment for an offer, always with the same nonce.
func (b *thief) sign(t *testing.T, c *x402.Challenge, r x402.Requirement) json.RawMessage {
	t.Helper()
	a, err := b.Authorize(t.Context(), x402.Order{Requirement: r, Asset: b.asset, Source: b.Address(),
		Validity: time.Minute, Now: time.Now()})
	require.NoError(t, err)
	payload, err := x402.EncodePayload(c, r, a.Payload, nil)
	require.NoError(t, err)
	return payload
}

// settle has another payment settled, by the lab's other facilitator.
func (b *thief) settle(t *testing.T, r x402.Requirement, payment json.RawMessage) {
	t.Helper()
	question := fmt.Sprintf(`{"x402Version":2,"paymentPayload":%s,"paymentRequirements":%s}`, payment, r.Raw)
	answer, err := http.Post(b.lab.Facilitators[1]+"/settle", "application/json", strings.NewReader(question))
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), `"success":true`)
}

func offerIn(t *testing.T, s *stall) *x402.Challenge {
	t.Helper()
	asked, err := s.client.CallTool(t.Context(), &mcp.CallToolParams{Name: "search"})
	require.NoError(t, err)
	text, err := json.Marshal(asked)
	require.NoError(t, err)
	c, err := x402.ReadMCPChallenge(x402.MCPMessage{Result: text})
	require.NoError(t, err)
	require.NotNil(t, c, "%s", text)
	return c
}

// On a real chain with the reference facilitator: while the tool runs, the buyer has another
// authorization with the nonce of his payment settled, to an accomplice. The seller has nothing, and
// the goods stay.
func TestThePaywallGivesNothingForAUsedNonce(t *testing.T) {
	lab := Start(t)
	seller, accomplice := testworld.NewEVMKey(t).Address(), testworld.NewEVMKey(t).Address()
	s, b := newStall(t, lab, seller), newThief(t, lab)
	c := offerIn(t, s)
	r := c.Accepts[0]
	payment := b.sign(t, c, r)
	text, failed := s.buy(t, payment, func() {
		r.Raw = bytes.ReplaceAll(r.Raw, []byte(r.PayTo), []byte(accomplice))
		r.PayTo = accomplice
		b.settle(t, r, b.sign(t, c, r))
	})
	require.Equal(t, uint64(1000), lab.EVMBalance(accomplice))
	require.Zero(t, lab.EVMBalance(seller))
	require.NotContains(t, text, "sunny from search", "goods for nothing")
	require.True(t, failed)
}

// A payment that is presented to two servers of one seller with separate ledgers buys at one of them only.
func TestOnePaymentBuysAtOneOfTwoServers(t *testing.T) {
	lab := Start(t)
	seller := testworld.NewEVMKey(t).Address()
	one, other, b := newStall(t, lab, seller), newStall(t, lab, seller), newThief(t, lab)
	c := offerIn(t, one)
	payment := b.sign(t, c, c.Accepts[0])
	text, failed := one.buy(t, payment, func() {
		text, failed := other.buy(t, payment, nil)
		require.False(t, failed, text)
		require.Contains(t, text, "sunny from search")
	})
	require.Equal(t, uint64(1000), lab.EVMBalance(seller))
	require.NotContains(t, text, "sunny from search", "bought twice for one payment")
	require.True(t, failed)
}
