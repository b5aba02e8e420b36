package testworld

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402/wire"
)

// Answer is an HTTP answer, read.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	Err    error // the connection ended early
}

// Get asks a URL on a connection of its own, and follows no redirect. A header is sent unless its name is "".
func Get(t testing.TB, url, name, value string) Answer {
	return within(t, 20*time.Second, url, name, value)
}

func within(t testing.TB, patience time.Duration, url, name, value string) Answer {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if name != "" {
		request.Header.Set(name, value)
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(request)
	if err != nil {
		return Answer{Err: err}
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return Answer{answer.StatusCode, answer.Header, string(body), err}
}

// Challenge asks a URL and reads what it wants.
func Challenge(t testing.TB, url string) *wire.Challenge {
	answer := Get(t, url, "", "")
	require.NoError(t, answer.Err)
	c, err := wire.ReadChallenge(answer.Status, answer.Header, []byte(answer.Body))
	require.NoError(t, err)
	return c
}

// Pay presents a payload for the first option of a challenge.
func Pay(t testing.TB, url string, c *wire.Challenge, payload json.RawMessage) Answer {
	return PayWithin(t, 20*time.Second, url, c, payload)
}

// PayWithin is Pay by a buyer with less or more patience.
func PayWithin(t testing.TB, patience time.Duration, url string, c *wire.Challenge,
	payload json.RawMessage) Answer {
	encoded, err := wire.EncodePayload(c, c.Accepts[0], payload, nil)
	require.NoError(t, err)
	paid := wire.Attach(c.Dialect, encoded)
	return within(t, patience, url, paid.Header, paid.Value)
}

// Settle asks a facilitator's /settle as a wallet would.
func Settle(t testing.TB, facilitator string, c *wire.Challenge, payload json.RawMessage) (status int,
	settlement *wire.Settlement) {
	encoded, err := wire.EncodePayload(c, c.Accepts[0], payload, nil)
	require.NoError(t, err)
	body, err := json.Marshal(map[string]any{"x402Version": c.Version, "paymentPayload": encoded,
		"paymentRequirements": wire.RequirementJSON(c.Accepts[0])})
	require.NoError(t, err)
	answer, err := http.Post(facilitator+"/settle", "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	settlement, _ = wire.DecodeSettlement(text)
	return answer.StatusCode, settlement
}

// Why is the seller's reason in a refusal.
func (r Answer) Why(t testing.TB) string {
	c, err := wire.ReadChallenge(r.Status, r.Header, []byte(r.Body))
	require.NoError(t, err, "%+v", r)
	return c.Error
}

// AskNode puts one question to a node, and returns its result or its error, as JSON.
func AskNode(t testing.TB, url, method, params string) string {
	answer, err := http.Post(url, "application/json",
		bytes.NewReader([]byte(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)))
	require.NoError(t, err)
	defer answer.Body.Close()
	var read struct{ Result, Error json.RawMessage }
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&read))
	return string(read.Result) + string(read.Error)
}

// Reference is what calls of the reference payer took, in milliseconds.
type Reference struct {
	Took []float64 `json:"took"` // of each
	CPU  float64   `json:"cpu"`  // of all together, without the start
}

// PayByReference pays a URL so many times with @x402/fetch, with a key of play money. lab is where e2e/lab
// lies, env what is added to the environment.
func PayByReference(t testing.TB, lab, url string, count int, key string, env ...string) (r Reference) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(lab, "parties", "paying.mjs"), url,
		strconv.Itoa(count), key)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	require.NoError(t, err, "is the lab prepared? (make prep) %s", out)
	require.NoError(t, json.Unmarshal(out, &r))
	return r
}

// CPUOf is what a process has computed so far, in milliseconds; 0 where the system does not tell.
func CPUOf(pid int) float64 {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) * 10 // Linux counts hundredths of a second
}
