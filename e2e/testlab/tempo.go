package testlab

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// Tempo is Tempo's main net on this machine, with sellers of mppx. e2e/lab/mpp/tempo.mjs says what they sell.
type Tempo struct {
	t                        testing.TB
	Node, HTTP, MCP, Control string
	Shop, Network            string // the sellers' account, EIP-55; CAIP-2
	PathUSD, USDC            string // tokens
}

// StartTempo starts it until the test ends.
func StartTempo(t testing.TB) *Tempo {
	t.Helper()
	w := &Tempo{t: t}
	StartParty(t, "mpp/tempo.mjs", map[string]any{}, w)
	return w
}

// Do changes something of it: a command in JSON, as tempo.mjs has them.
func (w *Tempo) Do(command string) (now struct {
	Balance string
	Paid    int // answers that the sellers gave for payment
}) {
	w.t.Helper()
	response, err := http.Post(w.Control, "application/json", strings.NewReader(command))
	require.NoError(w.t, err)
	defer response.Body.Close()
	body := must.Get(io.ReadAll(response.Body))(w.t)
	require.Equal(w.t, http.StatusOK, response.StatusCode, "%s", body)
	require.NoError(w.t, json.Unmarshal(body, &now))
	return now
}

// Fund gives an account units of a token.
func (w *Tempo) Fund(address, token string, amount uint64) {
	w.t.Helper()
	w.Do(fmt.Sprintf(`{"fund":%q,"token":%q,"amount":"%d"}`, address, token, amount))
}

// Balance returns an account's units of a token.
func (w *Tempo) Balance(token, address string) uint64 {
	w.t.Helper()
	now := w.Do(fmt.Sprintf(`{"balance":[%q,%q]}`, token, address))
	return must.Get(strconv.ParseUint(now.Balance, 10, 64))(w.t)
}

// Tables are those of a config.toml for a wallet on Tempo.
func (w *Tempo) Tables() string { return fmt.Sprintf("[networks.%q]\nrpc = %q\n", w.Network, w.Node) }

// Loopback are its places, for policy.loopback.
func (w *Tempo) Loopback() []string {
	return []string{HostPort(w.Node), HostPort(w.HTTP), HostPort(w.MCP)}
}
