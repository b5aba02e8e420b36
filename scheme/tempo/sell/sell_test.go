package sell

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/tempo"
	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

const (
	pathUSD = "0x20c0000000000000000000000000000000000000"
	usdc    = "0x20C000000000000000000000b9537d11c60E8b50"
	shop    = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	// testKey is public: anvil's first.
	testKey = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
)

var noon = time.Unix(1795900000, 0)

// signed is a payment of 10 units in pathUSD for a challenge of a shop's, changed before it is signed.
func signed(t *testing.T, change func(*tempo.Transaction)) (raw, hash string) {
	t.Helper()
	memo := tempo.Memo("shop.example", "a program", "challenge 1")
	tx := tempo.Transaction{ChainID: 4217, Gas: 800_000, Tip: 1, MaxFee: 2,
		Token: common.HexToAddress(pathUSD),
		Transfers: []tempo.Transfer{{To: common.HexToAddress(shop), Amount: money.NewAmount(10),
			Memo: &memo}},
		ValidBefore: uint64(noon.Unix()) + 25, FeeToken: common.HexToAddress(pathUSD)}
	change(&tx)
	key := must.Get(crypto.HexToECDSA(testKey))(t)
	digest := must.Get(tx.SignHash())(t)
	signature := [65]byte(must.Get(crypto.Sign(digest[:], key))(t))
	signature[64] += 27
	bytes, hash, err := tx.Signed(signature, crypto.PubkeyToAddress(key.PublicKey).Hex())
	require.NoError(t, err)
	return hexutil.Encode(bytes), hash
}

func as(raw string) json.RawMessage { return selling.JSON(map[string]string{"transaction": raw}) }

func TestRead(t *testing.T) {
	nonce := [32]byte(tempo.Memo("shop.example", "", "challenge 1"))
	asset, known := x402.NewRegistry(nil).Asset(x402.TempoMainnet, pathUSD)
	require.True(t, known)
	read := func(change func(*tempo.Transaction), answers *[32]byte) (selling.Signed, error) {
		raw, _ := signed(t, change)
		return Way{}.Read(selling.Shown{Payload: as(raw), Nonce: answers, Version: 2,
			Asked: x402.Requirement{MaxTimeout: time.Minute},
			Option: selling.Option{Network: x402.TempoMainnet, PayTo: shop, Amount: money.NewAmount(10),
				Asset: asset}}, selling.Shop{Now: func() time.Time { return noon }, Margin: 8 * time.Second})
	}
	good := must.Get(read(func(*tempo.Transaction) {}, &nonce))(t)
	require.Equal(t, "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", good.Payer)
	require.Equal(t, noon.Add(25*time.Second), good.Expires)
	type tx = tempo.Transaction
	for name, c := range map[string]struct {
		change func(*tx)
		want   error
	}{
		"another network": {func(x *tx) { x.ChainID = 42431 }, errNetwork},
		"a second transfer": {func(x *tx) { x.Transfers = append(x.Transfers, x.Transfers[0]) },
			errOther},
		"our fee":      {func(x *tx) { x.SellerPaysFee, x.FeeToken = true, common.Address{} }, errFee},
		"other money":  {func(x *tx) { x.Token = common.HexToAddress(usdc) }, selling.ErrAsset},
		"other payee":  {func(x *tx) { x.Transfers[0].To[0]++ }, selling.ErrPayee},
		"less":         {func(x *tx) { x.Transfers[0].Amount = money.NewAmount(9) }, selling.ErrAmount},
		"other realm":  {memoOf("bank.example", "challenge 1"), errMemo},
		"other id":     {memoOf("shop.example", "challenge 2"), errMemo},
		"other format": {func(x *tx) { x.Transfers[0].Memo[4] = 2 }, errMemo},
		"not yet":      {func(x *tx) { x.ValidAfter = x.ValidBefore - 1 }, selling.ErrNotYet},
		"too long":     {func(x *tx) { x.ValidBefore += 60 }, errLate},
		"for ever":     {func(x *tx) { x.ValidBefore = 1<<64 - 1 }, errLate},
		"too late":     {func(x *tx) { x.ValidBefore -= 17 }, selling.ErrExpired},
	} {
		_, err := read(c.change, &nonce)
		require.ErrorIs(t, err, c.want, name)
	}
	_, err := read(func(*tempo.Transaction) {}, nil)
	require.ErrorIs(t, err, errChallenge)
	_, err = Way{}.Read(selling.Shown{Payload: as("0x76")}, selling.Shop{})
	require.ErrorIs(t, err, selling.ErrInvalid)
}

func memoOf(realm, id string) func(*tempo.Transaction) {
	return func(x *tempo.Transaction) { *x.Transfers[0].Memo = tempo.Memo(realm, "", id) }
}

// node is one that answers as it is told. What it is not told is null.
type node struct {
	mu     sync.Mutex
	says   map[string]string // method → result, in JSON, or an error's {"code", "message"}
	asked  []string
	before string // the first answer to eth_getTransactionReceipt
}

func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var question struct {
		ID     uint64
		Method string
	}
	_ = json.NewDecoder(r.Body).Decode(&question)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, question.Method)
	said := n.says[question.Method]
	if question.Method == "eth_getTransactionReceipt" && n.before != "" {
		said, n.before = n.before, ""
	}
	member := "result"
	switch {
	case question.Method == "eth_chainId":
		said = `"0x1079"`
	case said == "":
		said = "null"
	case strings.Contains(said, `"code"`):
		member = "error"
	}
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,%q:%s}`, question.ID, member, said)
}

func TestSettle(t *testing.T) {
	raw, hash := signed(t, func(*tempo.Transaction) {})
	memo := tempo.Memo("shop.example", "a program", "challenge 1").Hex()
	event := func(token, from, to, memo, amount string) string {
		return fmt.Sprintf(`{"address":%q,"topics":[%q,%q,%q,%q],"data":%q}`, token, topicMemo, word(from),
			word(to), memo, "0x"+strings.Repeat("0", 62)+amount)
	}
	const buyer = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266"
	receipt := func(status, logs string) string { return `{"status":"` + status + `","logs":[` + logs + `]}` }
	with := func(token, from, to, memo, amount string) string {
		return receipt("0x1", event(token, from, to, memo, amount))
	}
	paid := with(pathUSD, buyer, shop, memo, "0a")
	const over, failing = `{"timestamp":"0x7fffffffff"}`, `{"code":-1,"message":"x"}`
	for name, c := range map[string]struct {
		before, receipt, send, block string
		want                         facilitator.Outcome
		isUsed                       bool
	}{
		"paid":              {receipt: paid, want: facilitator.Settled},
		"the send was lost": {receipt: paid, send: failing, want: facilitator.Settled},
		"over, and paid":    {receipt: paid, block: over, want: facilitator.Settled},
		"no event":          {receipt: receipt("0x1", ""), want: facilitator.Unknown},
		"no status":         {receipt: strings.Replace(paid, "0x1", "", 1), want: facilitator.Unknown},
		"diverted":          {receipt: with(pathUSD, buyer, usdc, memo, "0a"), want: facilitator.Unknown},
		"less":              {receipt: with(pathUSD, buyer, shop, memo, "09"), want: facilitator.Unknown},
		"another's money":   {receipt: with(pathUSD, shop, shop, memo, "0a"), want: facilitator.Unknown},
		"another memo": {receipt: with(pathUSD, buyer, shop, word(shop), "0a"),
			want: facilitator.Unknown},
		"a token of their own": {receipt: with(usdc, buyer, shop, memo, "0a"), want: facilitator.Unknown},
		"failed":               {receipt: receipt("0x0", ""), want: facilitator.Refused},
		"refused, and over":    {send: failing, block: over, want: facilitator.Refused},
		"it was there before":  {before: paid, receipt: paid, want: facilitator.Unknown, isUsed: true},
		"nobody can be asked":  {before: failing, receipt: paid, want: facilitator.NotSent},
	} {
		t.Run(name, func(t *testing.T) {
			n := &node{before: c.before, says: map[string]string{"eth_sendRawTransaction": c.send,
				"eth_getBlockByNumber": c.block, "eth_getTransactionReceipt": c.receipt}}
			if c.before == "" {
				n.before = "null"
			}
			if c.send == "" {
				n.says["eth_sendRawTransaction"] = `"` + hash + `"`
			}
			server := httptest.NewServer(n)
			defer server.Close()
			way := New(map[string]string{x402.TempoMainnet: server.URL}, server.Client())
			said := way.Settle(t.Context(), facilitator.Submission{Network: x402.TempoMainnet,
				Payload: selling.JSON(map[string]any{"payload": as(raw)})})
			require.Equal(t, c.want, said.Outcome, "%v", said.Err)
			require.Equal(t, c.isUsed, said.UsedBefore)
			isSent := !c.isUsed && c.want != facilitator.NotSent
			require.Equal(t, isSent, strings.Contains(strings.Join(n.asked, " "), "eth_sendRawTransaction"))
			if c.want == facilitator.Settled {
				require.Equal(t, hash, said.Settlement.Transaction)
				require.True(t, said.Settlement.Success)
			} else {
				require.Error(t, said.Err)
			}
		})
	}
}

func TestVerifyAsksForTheMoney(t *testing.T) {
	raw, _ := signed(t, func(*tempo.Transaction) {})
	for balance, isEnough := range map[string]bool{"0a": true, "09": false} {
		n := &node{says: map[string]string{"eth_call": `"0x` + strings.Repeat("0", 62) + balance + `"`}}
		server := httptest.NewServer(n)
		way := New(map[string]string{x402.TempoMainnet: server.URL}, server.Client())
		said, err := way.Verify(t.Context(), facilitator.Submission{Network: x402.TempoMainnet,
			Payload: selling.JSON(map[string]any{"payload": as(raw)})})
		require.NoError(t, err)
		require.Equal(t, isEnough, said.Valid)
		server.Close()
	}
}

// A node of another chain is told nothing.
func TestANodeOfAnotherChain(t *testing.T) {
	raw, _ := signed(t, func(*tempo.Transaction) {})
	n := &node{}
	server := httptest.NewServer(n)
	defer server.Close()
	way := New(map[string]string{x402.TempoTestnet: server.URL}, server.Client())
	said := way.Settle(t.Context(), facilitator.Submission{Network: x402.TempoTestnet,
		Payload: selling.JSON(map[string]any{"payload": as(raw)})})
	require.Equal(t, facilitator.NotSent, said.Outcome)
	require.NotContains(t, n.asked, "eth_sendRawTransaction")
}
