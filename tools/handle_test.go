package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/mcpconn"
	"x402-wallet/internal/must"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/wallet"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// Arguments that are not those of the schema are answered with a code and a remedy, before any
// wallet is opened.
func TestArguments(t *testing.T) {
	c := serve(t, &Server{Open: noWallet})
	for _, a := range []struct {
		name, tool, arguments, message string
	}{
		{"unknown", "x402_pay", `{"url":"https://a.example","force":true}`, `unknown field "force"`},
		{"a limit of one's own", "x402_pay", `{"url":"https://a.example","budget":{"day":"1000"}}`,
			`unknown field "budget"`},
		{"unknown where none are taken", "x402_setup_agent", `{"passphrase":"hunter2"}`,
			`unknown field "passphrase"`},
		{"a path", "x402_setup_agent", `{"outputPath":"../../.ssh/authorized_keys"}`,
			`unknown field "outputPath"`},
		{"a path to write content to", "x402_pay", `{"url":"https://a.example","output":"/etc/passwd"}`,
			`unknown field "output"`},
		{"a number for an amount", "x402_pay", `{"url":"https://a.example","maxAmount":10000}`,
			"maxAmount must be a string, not number"},
		{"a number for a url", "x402_estimate_cost", `{"url":5}`, "url must be a string, not number"},
		{"a list for headers", "x402_pay", `{"url":"https://a.example","headers":[]}`,
			"headers must be an object, not array"},
		{"a number for a header", "x402_pay", `{"url":"https://a.example","headers":{"X-A":1}}`,
			"headers must be a string, not number"},
		{"text for a limit", "x402_history", `{"limit":"five"}`, "limit must be an integer, not string"},
		{"a fraction for a limit", "x402_history", `{"limit":1.5}`,
			"limit must be an integer, not number 1.5"},
		{"too large for any integer", "x402_history", `{"limit":99999999999999999999}`,
			"limit must be an integer"},
		{"a list", "x402_pay", `[]`, "arguments must be an object, not array"},
		{"text", "x402_pay", `"url"`, "arguments must be an object, not string"},
		{"a key twice", "x402_pay", `{"url":"https://a.example","maxAmount":"1","maxAmount":"99999999"}`,
			"the arguments cannot be read: "},
		{"a key in another case", "x402_pay", `{"url":"https://a.example","MaxAmount":"99999999"}`,
			"the arguments cannot be read: "},
		{"a header twice but for its case", "x402_pay",
			`{"url":"https://a.example","headers":{"X-A":"","x-a":"1"}}`, "the arguments cannot be read: "},
		{"half a character", "x402_pay", `{"url":"https://a.example","body":"\ud800"}`,
			"the arguments cannot be read: "},
		{"too deep", "x402_pay", `{"url":"https://a.example","headers":{"a":` + deep(70) + `}}`,
			"headers must be a string, not object"},
	} {
		t.Run(a.name, func(t *testing.T) {
			f := c.refused(a.tool, json.RawMessage(a.arguments))
			require.Equal(t, x402.InvalidArgument, f.Error)
			require.Contains(t, f.Message, a.message)
			require.NotEmpty(t, f.Hint)
			require.Equal(t, x402.Actor("agent"), f.FixedBy)
			require.True(t, f.SafeToRetry)
			require.Equal(t, "0", f.Spent)
			require.NotContains(t, f.Message+f.Hint, "hunter2")
		})
	}
	t.Run("trailing JSON", func(t *testing.T) { // cannot come over MCP
		var in PayIn
		require.ErrorContains(t, ReadArguments([]byte(`{"url":"a"}{"url":"b"}`), &in), "more than one value")
		require.Error(t, ReadArguments([]byte(`{"url":"a"`), &in))
		require.Error(t, ReadArguments([]byte(` `), &in))
	})
}

func deep(n int) string {
	text := "1"
	for range n {
		text = `{"a":` + text + `}`
	}
	return text
}

func TestArgumentsThatAreMissing(t *testing.T) {
	w := &Wallet{Engine: &pay.Engine{}}
	c := serve(t, &Server{Open: func(context.Context) (*Wallet, error) { return w, nil }})
	for _, tool := range []string{"x402_pay", "x402_estimate_cost"} {
		for _, arguments := range []string{`{}`, `null`, `{"url":null}`, `{"url":""}`, `{"method":"GET"}`} {
			f := c.refused(tool, json.RawMessage(arguments))
			require.Equal(t, x402.InvalidArgument, f.Error)
			require.Equal(t, "url is missing", f.Message)
		}
	}
	a := c.request("tools/call", map[string]any{"name": "x402_pay"}) // no arguments at all
	require.Contains(t, string(a.Result), "url is missing")
	a = c.request("tools/call", map[string]any{"name": "x402_drain"})
	require.Equal(t, -32602, a.Error.Code)
	a = c.request("no/such", map[string]any{})
	require.Equal(t, -32601, a.Error.Code)
}

const secret = "4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318"

// traitor is a transport, a chain and a wallet that panic with a secret, or fail with one.
type traitor struct {
	solanaChain // for what is not called
	evmChain
	err error
}

func (t traitor) fail() error {
	if t.err == nil {
		panic("key " + secret)
	}
	return t.err
}

func (t traitor) Check(seller.Request) error                                  { return nil }
func (t traitor) Ask(context.Context, seller.Request) (*seller.Answer, error) { return nil, t.fail() }
func (t traitor) Present(context.Context, seller.Request, wire.Attachment) (*seller.Answer, error) {
	return nil, t.fail()
}
func (t traitor) Address() string                        { return "0x1" }
func (t traitor) VaultOn(string) string                  { return "" }
func (t traitor) AllowanceOn(string) *x402.AllowanceRule { return nil }
func (t traitor) Funds(context.Context, string, x402.AssetInfo) (x402.Funds, error) {
	return x402.Funds{}, t.fail()
}
func (t traitor) Holdings(context.Context, string, []x402.AssetInfo) ([]x402.AssetInfo, money.Amount, error) {
	return nil, money.Amount{}, t.fail()
}
func (t traitor) Addresses() (string, string)                      { panic(t.fail()) }
func (t traitor) Locked() bool                                     { panic(t.fail()) }
func (t traitor) Unlock(context.Context, []byte) error             { return t.fail() }
func (t traitor) Clock(context.Context, string) (time.Time, error) { return time.Time{}, t.fail() }
func (t traitor) Delegation(context.Context, string, string) (onchain.Delegation, error) {
	return onchain.Delegation{}, t.fail()
}

func betrayed(t *testing.T, by traitor) (*client, *lockedText) {
	store := testworld.NewStore(t, "")
	text := &lockedText{}
	log := slog.New(slog.NewTextHandler(text, nil))
	w := &Wallet{
		Engine: &pay.Engine{
			Transport: by,
			Store:     store,
			Asker:     asking.Asker{Store: store},
			Guard:     historytest.Guard{Store: store},
			Assets:    x402.NewRegistry(nil),
			Now:       time.Now,
			Log:       log,
			Policy:    pay.Policy{Deadline: time.Minute},
		},
		Store:    store,
		Keys:     by,
		EVM:      by,
		Solana:   by,
		Networks: []string{"eip155:8453", "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"},
	}
	return serve(t, &Server{Log: log, Open: func(context.Context) (*Wallet, error) { return w, nil }}), text
}

// A panic ends at the boundary: INTERNAL, no value in answer or log, the process lives. A payment
// of unknown outcome is not safe to make again.
func TestPanics(t *testing.T) {
	c, log := betrayed(t, traitor{})
	for _, call := range []struct{ tool, arguments string }{
		{"x402_pay", `{"url":"https://a.example"}`},
		{"x402_estimate_cost", `{"url":"https://a.example"}`},
		{"x402_check_delegation", `{"tokenAccount":"x"}`},
		{"x402_check_delegation", `{}`},
		{"x402_setup_agent", `{}`},
	} {
		t.Run(call.tool, func(t *testing.T) {
			f := c.refused(call.tool, json.RawMessage(call.arguments))
			require.Equal(t, x402.Internal, f.Error, call.tool)
			require.Equal(t, x402.Actor("wallet"), f.FixedBy)
			require.Equal(t, call.tool != "x402_pay", f.SafeToRetry)
			require.NotContains(t, f.Message+f.Hint, secret)
		})
	}
	rows := c.ok("x402_check_balance", nil)["networks"].([]any) // one goroutine a row
	require.Len(t, rows, 2)
	for _, row := range rows {
		require.Equal(t, "INTERNAL", row.(map[string]any)["errorCode"])
		require.NotContains(t, row, "balance")
	}
	require.NotContains(t, log.String(), secret)
	require.Contains(t, log.String(), "goroutine", "but where it was")
}

// What happened inside stays inside: the agent gets a code, the log gets the cause.
func TestErrorsOfOurOwn(t *testing.T) {
	c, log := betrayed(t, traitor{err: errors.New("open /home/someone/" + secret)})
	for _, call := range []struct {
		tool, arguments string
		code            x402.Code
	}{
		{"x402_pay", `{"url":"https://a.example"}`, x402.Internal},
		{"x402_estimate_cost", `{"url":"https://a.example"}`, x402.EstimateFailed},
		{"x402_check_delegation", `{"tokenAccount":"x"}`, x402.CheckFailed},
		{"x402_check_delegation", `{}`, x402.CheckFailed},
	} {
		t.Run(call.tool, func(t *testing.T) {
			f := c.refused(call.tool, json.RawMessage(call.arguments))
			require.Equal(t, call.code, f.Error, call.tool)
			text, _ := json.Marshal(f)
			require.NotContains(t, string(text), secret)
			require.NotContains(t, string(text), "someone")
			require.Contains(t, log.String(), secret, "the log says why")
		})
	}
	rows := c.ok("x402_check_balance", nil)["networks"].([]any)
	for _, row := range rows {
		require.Equal(t, "CHECK_FAILED", row.(map[string]any)["errorCode"])
		require.NotContains(t, fmt.Sprint(row), secret)
	}
}

// Errors of the keystore keep their code and remedy, through every tool and resource.
func TestErrorsOfTheKeystore(t *testing.T) {
	none := &Server{Open: func(context.Context) (*Wallet, error) {
		_, err := wallet.Open(filepath.Join(t.TempDir(), "none"))
		return nil, err
	}}
	c := serve(t, none)
	for _, call := range []struct{ tool, arguments string }{
		{"x402_pay", `{"url":"https://a.example"}`}, {"x402_estimate_cost", `{"url":"https://a.example"}`},
		{"x402_check_balance", `{}`}, {"x402_check_delegation", `{}`}, {"x402_history", `{}`},
		{"x402_transaction_history", `{}`},
	} {
		t.Run(call.tool, func(t *testing.T) {
			f := c.refused(call.tool, json.RawMessage(call.arguments))
			require.Equal(t, x402.WalletNotFound, f.Error)
			require.Equal(t, x402.ByPerson, f.FixedBy)
			require.Contains(t, f.Hint, "x402-wallet init")
		})
	}
	a := c.request("resources/read", map[string]any{"uri": "x402://payments/pay_1/content"})
	require.Equal(t, -32603, a.Error.Code)
	require.Contains(t, string(a.Error.Data), `"WALLET_NOT_FOUND"`)

	open := t.TempDir()
	require.NoError(t, os.WriteFile(open+"/keystore.json", []byte(`{}`),
		0o644)) //nolint:gosec // that is the point
	require.NoError(t, os.Chmod(open+"/keystore.json", 0o644))
	c = serve(t, &Server{Open: func(context.Context) (*Wallet, error) {
		_, err := wallet.Open(open)
		return nil, err
	}})
	for _, tool := range []string{"x402_setup_agent", "x402_history"} {
		require.Equal(t, x402.KeystorePermissions, c.refused(tool, nil).Error)
	}
}

// The form of an error is whole whatever is known of it.
func TestErrorForm(t *testing.T) {
	e := x402.Errorf(x402.OutcomeUnknown, "sent, no proof").WithDetail("amount", money.NewAmount(5))
	e.PaymentID, e.Spent = "pay_1", "5"
	text := must.Get(json.Marshal(ErrorOf(fmt.Errorf("pay: %w", e))))(t)
	require.JSONEq(t,
		`{"error":"OUTCOME_UNKNOWN","message":"sent, no proof","hint":"","fixedBy":"wallet","safeToRetry":true,"next":{"do":"repeat"},"paymentId":"pay_1","spent":"5","details":{"amount":"5"}}`,
		string(text))
	text = must.Get(json.Marshal(ErrorOf(errors.New("disk on fire"))))(t)
	require.JSONEq(t,
		`{"error":"INTERNAL","message":"the wallet had an internal error; see its log on stderr","hint":"","fixedBy":"wallet","safeToRetry":true,"next":{"do":"repeat"},"spent":"0","details":{}}`,
		string(text))
}

// Whatever a client writes: no panic, the session lasts to the end of its input, a number that is
// an id is one it wrote, and what is answered without the SDK is JSON-RPC on a line of its own.
func FuzzStdio(f *testing.F) {
	for _, input := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x402_pay"}}` + "\n" +
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}` + "\n",
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}` + "\n", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]` +
			"\n", "{\n\n\r\n", `{"jsonrpc":"2.0","id":"a","result":{}}` + "\n",
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}` + "\n",
		`{"jsonrpc":"1.0","id":null,"method":7}` + "\n", "\xff\xfe\n", `{"id":{},"method":"ping"}`,
	} {
		f.Add([]byte(input))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		out := &output{}
		in := io.NopCloser(bytes.NewReader(input))
		l := newStdioTransport(in, out, paysByName)
		l.stdio = mcpconn.Stdio(in, out, 1<<10, false)
		must.Get(l.Connect(t.Context()))(t)
		for { // note, as Read does it; Read would wait for answers at the end
			m, err := l.Connection.Read(t.Context())
			if err != nil {
				require.Equal(t, io.EOF, err)
				break
			}
			r, ok := m.(*jsonrpc.Request)
			if !ok {
				continue
			}
			if n, ok := r.ID.Raw().(int64); ok {
				require.Contains(t, string(input), strconv.FormatInt(n, 10))
			}
			l.note(r)
		}
		require.NoError(t, l.Close())
		for line := range bytes.Lines([]byte(out.String())) {
			require.Equal(t, byte('\n'), line[len(line)-1])
			answer := must.JSON[struct {
				JSONRPC string
				Error   struct{ Code int }
			}](line)(t)
			require.Equal(t, "2.0", answer.JSONRPC)
			require.Negative(t, answer.Error.Code)
		}
	})
}
