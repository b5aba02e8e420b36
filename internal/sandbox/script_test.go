package sandbox

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gagliardetto/solana-go"
	"github.com/mr-tron/base58"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402test/fault"
)

func tell(t *testing.T, s *Sandbox, script string, header ...string) (status int, answer string) {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, s.ControlURL+"/script",
		strings.NewReader(script)))(t)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	said := must.Get(http.DefaultClient.Do(r))(t)
	defer said.Body.Close()
	return said.StatusCode, string(must.Get(io.ReadAll(said.Body))(t))
}

func askControl(t *testing.T, s *Sandbox, path string, into any) (status int) {
	t.Helper()
	answer := testworld.Get(t, s.ControlURL+path, "", "")
	require.NoError(t, answer.Err)
	require.NoError(t, json.Unmarshal([]byte(answer.Body), into), answer.Body)
	return answer.Status
}

// A script changes what is sold and how it fails, while the sandbox runs; what was paid can be asked for.
func TestControl(t *testing.T) {
	s := start(t, Options{})
	payer := newEVMPayer(t, s, 0)
	status, said := tell(t, s, `{"remove":["*"],
		"products":{"/a":{"price":"0.05","content":"{\"a\":1}","description":"A thing"},
			"/b":{"price":"0.07"}},
		"faults":[{"fault":"seller fails","path":"/a"},
			{"fault":"facilitator cuts after","path":"/b","always":true}],
		"fund":[{"address":"`+payer.Address()+`","amount":"1.00"}],
		"delegate":{"address":"`+s.PayToSolana+`","amount":"0.40"},"advance":"1h"}`)
	require.Equal(t, 200, status, said)
	require.Len(t, s.Offers(), 2)
	require.Equal(t, []string{"/a", "/b"}, []string{s.Offers()[0].Path, s.Offers()[1].Path})
	require.EqualValues(t, 400_000, s.Delegated(s.OwnerAccount))
	require.WithinDuration(t, time.Now().Add(time.Hour), s.Now(), time.Minute)
	require.Equal(t, 404, testworld.Get(t, s.SellerURL+"/weather", "", "").Status)

	for _, want := range []int{500, 200} { // the fault is for one call
		c := testworld.Challenge(t, s.SellerURL+"/a")
		require.Equal(t, want, pay(t, s, "/a", c, payer.sign(t, s, c.Accepts[0]).Payload).Status)
	}
	c := testworld.Challenge(t, s.SellerURL+"/b")
	require.Equal(t, 502, pay(t, s, "/b", c, payer.sign(t, s, c.Accepts[0]).Payload).Status)

	var paid struct{ Payments []Paid }
	require.Equal(t, 200, askControl(t, s, "/payments", &paid))
	require.Len(t, paid.Payments, 3)
	first := paid.Payments[0]
	require.Equal(t, []string{"50000", "0.05", "/a", payer.Address()},
		[]string{first.Amount, first.Price, first.Path, first.Payer})
	for query, want := range map[string]int{"path=/b": 1, "amount=50000": 2, "nonce=" + first.Nonce: 1,
		"payer=" + strings.ToLower(payer.Address()): 3, "payTo=" + s.PayToSolana: 0,
		"path=/a&nonce=" + first.Nonce: 1, "transaction=" + first.Transaction: 1, "network=eip155:1": 0,
		"signer=" + payer.Address(): 3} {
		require.Equal(t, 200, askControl(t, s, "/payments?"+query, &paid), query)
		require.Len(t, paid.Payments, want, query)
	}
	var state struct {
		Products []Offer
		Faults   []ScriptFault
		Served   map[string]int
	}
	require.Equal(t, 200, askControl(t, s, "/state", &state))
	require.Equal(t, []ScriptFault{{Fault: fault.FacilitatorCutsAfter, Path: "/b", Always: true}},
		state.Faults)
	require.Equal(t, map[string]int{"/a": 1}, state.Served)
	require.Equal(t, Offer{Path: "/a", URL: s.SellerURL + "/a", Price: "0.05", Networks: []string{EVM},
		Scheme: "exact", About: "A thing"}, state.Products[0])
	var balance struct{ Amount, Dollars string }
	require.Equal(t, 200, askControl(t, s, "/balance?address="+payer.Address(), &balance))
	require.Equal(t, []string{"830000", "0.83"}, []string{balance.Amount, balance.Dollars})

	status, _ = tell(t, s, `{"heal":true,"remove":["/a"],"products":{"/b":{"price":"0.01"}}}`)
	require.Equal(t, 200, status)
	c = testworld.Challenge(t, s.SellerURL+"/b")
	require.Equal(t, "10000", c.Accepts[0].Amount.String())
	require.Equal(t, 200, pay(t, s, "/b", c, payer.sign(t, s, c.Accepts[0]).Payload).Status)
}

// A script with a mistake does nothing at all, and the answer says what is wrong.
func TestScriptsAreRefused(t *testing.T) {
	s := start(t, Options{})
	before, ahead := s.Offers(), s.ahead
	for script, want := range map[string]string{
		`{"product":{}}`:                      `unknown field`,
		`{"heal":true,"heal":false}`:          `duplicate key`,
		`{} {}`:                               `follows the JSON`,
		`[`:                                   `no script`,
		`{"products":{"a":{}}}`:               `a path begins with /`,
		`{"products":{"/a?b":{}}}`:            `a path begins with /`,
		`{"products":{"/v1/a":{}}}`:           `dialect`,
		`{"products":{"/a":{"price":"1,5"}}}`: `price`,
		`{"products":{"/a":{"price":"-1"}}}`:  `price`,
		`{"products":{"/a":{"price":"1.00","networks":["evm","evm"]}}}`:        `each once`,
		`{"products":{"/a":{"price":"1.00","networks":["eip155:1"]}}}`:         `evm and solana`,
		`{"products":{"/a":{"price":"1.00","payTo":"0x12"}}}`:                  `no address`,
		`{"products":{"/a":{"price":"1.00","asset":"` + s.PayToSolana + `"}}}`: `no address`,
		`{"products":{"/a":{"price":"1.00","payTo":"0x209693Bc6afc0C5328bA36FaF03C514EF312287C",` +
			`"networks":["evm","solana"]}}}`: `one network`,
		`{"products":{"/a":{"maxTimeoutSeconds":-1}}}`:                        `maxTimeoutSeconds`,
		`{"faults":[{"fault":"seller sleeps"}]}`:                              `no fault`,
		`{"faults":[{"fault":"seller hangs","times":1,"always":true}]}`:       `exclude`,
		`{"faults":[{"fault":"seller hangs","times":-1}]}`:                    `cannot happen`,
		`{"faults":[{"fault":"evm node down","path":"/a"}]}`:                  `happens at no path`,
		`{"fund":[{"address":"nobody","amount":"1.00"}]}`:                     `nobody`,
		`{"fund":[{"address":"` + s.PayToEVM + `","amount":"999999999999"}]}`: `nobody has so much`,
		`{"delegate":{"address":"` + s.PayToEVM + `","amount":"1.00"}}`:       `other chain`,
		`{"advance":"soon"}`: `advance`, `{"advance":"-1s"}`: `advance`, `{"advance":"9000h"}`: `advance`,
		// good things before the mistake are not done
		`{"remove":["*"],"advance":"1h","faults":[{"fault":"seller sleeps"}]}`: `no fault`,
	} {
		status, said := tell(t, s, script)
		require.Equal(t, 400, status, script)
		answer := must.JSON[struct {
			Error struct{ Code, Message string }
		}]([]byte(said))(t)
		require.Equal(t, string(x402.InvalidArgument), answer.Error.Code, script)
		require.Contains(t, answer.Error.Message, want, script)
	}
	require.Equal(t, before, s.Offers())
	require.Equal(t, ahead, s.ahead)
	require.Zero(t, s.Balance(s.PayToEVM))
}

// A web page cannot use the control, and no body is read without end.
func TestControlIsNotForPages(t *testing.T) {
	s := start(t, Options{})
	refusals := map[string]int{"Origin": 403, "Host": 421}
	for _, header := range [][]string{{"Origin", "https://evil.example"}, {"Origin", "null"},
		{"Host", "evil.example"}, {"Host", strings.Replace(s.ControlURL[7:], "127.0.0.1", "localhost", 1)}} {
		status, said := tell(t, s, `{"remove":["*"]}`, header...)
		require.Equal(t, refusals[header[0]], status, said)
	}
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", ""} {
		status, _ := tell(t, s, `{"remove":["*"]}`, "Content-Type", kind)
		require.Equal(t, 415, status, kind)
	}
	status, _ := tell(t, s, strings.Repeat(" ", maxScript+1))
	require.Equal(t, 413, status)
	require.NotEmpty(t, s.Offers())
	for path, want := range map[string]int{"/payments?payr=0x1": 400, "/payments?amount=x": 400,
		"/payments?amount=0": 400, "/balance": 400, "/balance?address=0x": 400, "/script": 405} {
		require.Equal(t, want, testworld.Get(t, s.ControlURL+path, "", "").Status, path)
	}
}

// The accounts that everybody has are the same each time, and they pay.
func TestPlayAccounts(t *testing.T) {
	s := start(t, Options{})
	onEVM, onSolana, err := s.PlayAccounts(3 * USDC)
	require.NoError(t, err)
	require.Equal(t, "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", onEVM.Address)
	require.Equal(t, "0x"+playKeyEVM, onEVM.PlayKey)
	require.EqualValues(t, 3*USDC, s.Balance(onEVM.Address))
	require.EqualValues(t, 3*USDC, s.Balance(onSolana.Address))
	require.EqualValues(t, 3*USDC, s.Balance(onSolana.TokenAccount))
	pair := must.JSON[[64]byte](onSolana.PlayKeypair)(t)
	require.Equal(t, base58.Encode(pair[:]), onSolana.PlayKey)
	require.Equal(t, solana.PrivateKey(pair[:]).PublicKey().String(), onSolana.Address)
	_, again, err := start(t, Options{}).PlayAccounts(0)
	require.NoError(t, err)
	require.Equal(t, onSolana.Address, again.Address)
	require.True(t, x402.HasCode(must.Err(s.NewAccount("bitcoin", 1)), x402.InvalidArgument))
}

// The ports are the ones that were asked for, or none of them.
func TestPorts(t *testing.T) {
	taken := start(t, Options{})
	var port int
	for range 50 { // five in a row that are free, whoever else runs
		port = 20_000 + int(time.Now().UnixNano()/1000%30_000)
		s, err := Start(Options{Port: port})
		if err != nil {
			continue
		}
		require.Equal(t, "http://127.0.0.1:"+strconv.Itoa(port), s.SellerURL)
		require.Equal(t, "http://127.0.0.1:"+strconv.Itoa(port+4), s.ControlURL)
		require.Error(t, must.Err(Start(Options{Port: port - 2})), "its third port is taken")
		require.NoError(t, s.Close())
		return
	}
	require.Fail(t, "no five ports in a row were free", taken.SellerURL)
}
