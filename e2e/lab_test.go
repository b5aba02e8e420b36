package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const price = 1000 // of everything in the lab that is not dear on purpose

// TestLab asks whether the lab itself is right: the reference payers pay in it, and the chains must
// show it.
func TestLab(t *testing.T) {
	lab := Start(t)
	lab.EVMMint(lab.EVM.Client.Address, 1_000_000)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *Lab)
	}{
		{"everything is on loopback", labIsOnLoopback},
		{"the token signs in the domain of the real USDC", labTokenHasUSDCsDomain},
		{"V2 on EVM", labPaysV2OnEVM},
		{"V2 on Solana", labPaysV2OnSolana},
		{"V1", labPaysV1},
		{"a delegate pays from the owner's account", labDelegatePays},
		{"the seller's other routes", labSellersRoutes},
		{"faults", labFaults},
		{"parts go down and come back", labPartsStopAndStart},
		{"time goes on and back", labTimeMoves},
		{"the seed's seller believes the chain alone", labSeedSellerChecksTheChain},
		{"a config for it", labConfig},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, lab.For(t)) })
	}
}

func labIsOnLoopback(t *testing.T, lab *Lab) {
	for _, at := range append([]string{lab.EVM.URL, lab.SVM.URL, lab.Seller, lab.SellerV1, lab.SellerSeed,
		lab.Control}, lab.Facilitators...) {
		parsed, err := url.Parse(at)
		require.NoError(t, err)
		assert.Equal(t, "127.0.0.1", parsed.Hostname())
	}
}

func labTokenHasUSDCsDomain(t *testing.T, lab *Lab) {
	// DOMAIN_SEPARATOR() of 0x036CbD53842c5426634e7929541eC2318f3dCF7e on Base Sepolia
	const separator = "0x71f17a3b2ff373b803d70a5a07c046c1a2bc8e89c09ef722fcb047abe94c9818"
	call := `{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"to":"` + lab.EVM.Asset +
		`","data":"0x3644e515"},"latest"]}`
	response, err := http.Post(lab.EVM.URL, "application/json", strings.NewReader(call))
	require.NoError(t, err)
	assert.Contains(t, bodyOf(t, response), separator)
}

func labPaysV2OnEVM(t *testing.T, lab *Lab) {
	lab.ResetLogs()
	spent := len(lab.EVMSpentNonces(lab.EVM.Client.Address))
	transaction := lab.paysOnEVM(t, func() Paid { return lab.PayV2("", lab.Seller+"/evm?i=17", "", "") })
	assert.Equal(t, []EVMTransfer{{From: lab.EVM.Client.Address, To: lab.EVM.PayTo, Amount: price}},
		lab.EVMTransfers(transaction))

	nonces := lab.EVMSpentNonces(lab.EVM.Client.Address)
	require.Len(t, nonces, spent+1)
	assert.Equal(t, transaction, nonces[spent].Transaction)
	assert.True(t, lab.EVMNonceSpent(lab.EVM.Client.Address, nonces[spent].Nonce))
	assert.False(t, lab.EVMNonceSpent(lab.EVM.Client.Address, "0x"+strings.Repeat("11", 32)))

	asked := lab.SellerLog(PartSeller)
	require.Len(t, asked, 2)
	assert.Equal(t, "/evm?i=17", asked[0].URL)
	assert.Equal(t, []int{402, 200}, []int{asked[0].Status, asked[1].Status})
	assert.NotEmpty(t, asked[1].Headers["payment-signature"])
	assert.Equal(t, []string{"verify", "settle"}, opsOf(lab.FacilitatorLog(0)))
	assert.Empty(t, lab.FacilitatorLog(1))
}

func labPaysV2OnSolana(t *testing.T, lab *Lab) {
	for path, mint := range map[string]string{"/svm": lab.SVM.Mint, "/svm2022": lab.SVM.Mint2022} {
		transaction := lab.paysOnSVM(t, mint, func() Paid {
			return lab.PayV2("", lab.Seller+path, "", "")
		})
		changes := map[string]int64{}
		for _, change := range lab.SVMChanges(transaction) {
			assert.Equal(t, mint, change.Mint)
			changes[change.Owner] = change.Change
		}
		assert.Equal(t, map[string]int64{lab.SVM.Client.Address: -price, lab.SVM.PayTo: price}, changes)
		transfers := lab.SVMTransfers(lab.SVMAta(lab.SVM.PayTo, mint))
		assert.Equal(t, transaction, transfers[len(transfers)-1].Transaction)
	}
}

func labPaysV1(t *testing.T, lab *Lab) {
	lab.paysOnEVM(t, func() Paid { return lab.PayV1(lab.SellerV1+"/v1/evm?i=17", "base-sepolia") })
	lab.paysOnSVM(t, lab.SVM.Mint, func() Paid {
		return lab.PayV1(lab.SellerV1+"/v1/svm", "solana-devnet")
	})
}

func labDelegatePays(t *testing.T, lab *Lab) {
	owner, agent := lab.SVMKey("owner"), lab.SVMKey("agent")
	for path, mint := range map[string]string{"/svm": lab.SVM.Mint, "/svm2022": lab.SVM.Mint2022} {
		account := lab.SVMFund(owner.Address, mint, 50_000)
		require.Equal(t, account, lab.SVMDelegate(owner.Name, agent.Address, mint, 1500))
		pay := func() int {
			return get(t, lab.Seller+path, "PAYMENT-SIGNATURE", lab.SVMDelegatedPayment(lab.Seller+path,
				account, agent.Name)).StatusCode
		}
		require.Equal(t, http.StatusOK, pay())
		state := lab.SVMTokenAccount(account)
		assert.Equal(t, TokenAccount{
			Exists: true, Program: state.Program, Mint: mint, Owner: owner.Address, State: "initialized",
			Delegate: agent.Address,
			Amount:   50_000 - price, DelegatedAmount: 500,
		}, state)
		assert.Equal(t, http.StatusPaymentRequired, pay(), "above the delegation")

		lab.SVMDelegate(owner.Name, agent.Address, mint, 50_000)
		lab.SVMFreeze(account)
		assert.Equal(t, "frozen", lab.SVMTokenAccount(account).State)
		assert.Equal(t, http.StatusPaymentRequired, pay(), "frozen")
		lab.SVMThaw(account)

		late := lab.SVMDelegatedPayment(lab.Seller+path, account, agent.Name)
		lab.SVMAdvanceSlots(151)
		assert.Equal(t, http.StatusPaymentRequired, get(t, lab.Seller+path, "PAYMENT-SIGNATURE",
			late).StatusCode, "blockhash expired")

		lab.SVMRevoke(owner.Name, mint)
		assert.Empty(t, lab.SVMTokenAccount(account).Delegate)
		assert.Equal(t, http.StatusPaymentRequired, pay(), "revoked")
		assert.Equal(t, uint64(50_000-price), lab.SVMBalance(owner.Address, mint))
	}
	assert.False(t, lab.SVMTokenAccount(lab.SVMAta(lab.SVMKey("nobody").Address, "")).Exists)
}

func labSellersRoutes(t *testing.T, lab *Lab) {
	assert.Equal(t, http.StatusOK, get(t, lab.Seller+"/free").StatusCode)
	echo := lab.PayV2(http.MethodPost, lab.Seller+"/echo", "text/plain", "hello")
	assert.JSONEq(t, `{"method":"POST","body":"hello","contentType":"text/plain"}`, echo.Body)

	offers := challenge(t, get(t, lab.Seller+"/multi").Header.Get("PAYMENT-REQUIRED"))
	require.Len(t, offers, 2)
	assert.Equal(t, []string{lab.SVM.Network, "1000", lab.EVM.Network, "2000"},
		[]string{offers[0].Network, offers[0].Amount, offers[1].Network, offers[1].Amount})
	dear := challenge(t, get(t, lab.Seller+"/evm/expensive").Header.Get("PAYMENT-REQUIRED"))
	assert.Equal(t, "50000000", dear[0].Amount)

	lab.ResetLogs()
	before := lab.EVMBalance(lab.EVM.PayTo)
	assert.Equal(t, http.StatusInternalServerError, lab.PayV2("", lab.Seller+"/fail500", "", "").Status)
	assert.Equal(t, []string{"verify"}, opsOf(lab.FacilitatorLog(0)))
	assert.Equal(t, before, lab.EVMBalance(lab.EVM.PayTo))
}

func labFaults(t *testing.T, lab *Lab) {
	before := lab.EVMBalance(lab.EVM.PayTo)
	lab.Inject(0, Fault{Op: "settle", After: true, Drop: true, N: 1})
	assert.Equal(t, http.StatusPaymentRequired, lab.PayV2("", lab.Seller+"/evm", "", "").Status,
		"settled, but nobody was told")
	assert.Equal(t, before+price, lab.EVMBalance(lab.EVM.PayTo))

	lab.Inject(0, Fault{Op: "settle", Lie: map[string]any{"transaction": "0xdead"}})
	assert.Equal(t, "0xdead", lab.PayV2("", lab.Seller+"/evm", "", "").Receipt.Transaction)
	assert.Equal(t, before+2*price, lab.EVMBalance(lab.EVM.PayTo))

	lab.Inject(0, Fault{Op: "verify", Status: 503})
	assert.Equal(t, http.StatusPaymentRequired, lab.PayV2("", lab.Seller+"/evm", "", "").Status)
	lab.Heal(0)
	assert.Equal(t, http.StatusOK, lab.PayV2("", lab.Seller+"/evm", "", "").Status)
	assert.Equal(t, before+3*price, lab.EVMBalance(lab.EVM.PayTo))
}

func labPartsStopAndStart(t *testing.T, lab *Lab) {
	for part, at := range map[Part]string{
		PartEVM: lab.EVM.URL, PartSVM: lab.SVM.URL, PartFacilitator1: lab.Facilitators[1] + "/supported",
		PartSeller: lab.Seller + "/free", PartSellerV1: lab.SellerV1 + "/free",
		PartSellerSeed: lab.SellerSeed + "/free",
	} {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			lab := lab.For(t)
			reach := func(patience time.Duration) error {
				client := http.Client{Timeout: patience}
				response, err := client.Get(at)
				if err == nil {
					err = response.Body.Close()
				}
				return err
			}
			require.NoError(t, reach(opWait), part)
			lab.StopPart(part)
			var refused *net.OpError
			require.ErrorAs(t, reach(opWait), &refused, part)
			assert.Equal(t, "dial", refused.Op)
			lab.HangPart(part)
			var slow net.Error
			require.ErrorAs(t, reach(300*time.Millisecond), &slow, part)
			assert.True(t, slow.Timeout())
			lab.StartPart(part)
			require.NoError(t, reach(opWait), part)
		})
	}
}

func labTimeMoves(t *testing.T, lab *Lab) {
	now := lab.evmTime(t, "finalized")
	t.Run("on", func(t *testing.T) {
		lab := lab.For(t)
		lab.EVMIncreaseTime(100)
		assert.GreaterOrEqual(t, lab.evmTime(t, "finalized"), now+100)
		// Still valid. And a transaction of the facilitator's, so that going back must mind its
		// count of them.
		assert.Equal(t, http.StatusOK, lab.PayV2("", lab.Seller+"/evm", "", "").Status)
		lab.EVMIncreaseTime(3600)
		assert.Equal(t, http.StatusPaymentRequired, lab.PayV2("", lab.Seller+"/evm", "", "").Status,
			"validBefore has passed on the chain")
	})
	assert.Less(t, lab.evmTime(t, "latest"), now+3600)
	for range 2 {
		lab.For(t).paysOnEVM(t, func() Paid { return lab.PayV2("", lab.Seller+"/evm", "", "") })
	}
	final := lab.evmTime(t, "finalized")
	lab.EVMMine(0)
	assert.Greater(t, lab.evmTime(t, "finalized"), final)
}

func labSeedSellerChecksTheChain(t *testing.T, lab *Lab) {
	const header = "X-Payment-Signature"
	madeUp := map[bool]string{true: "0x" + strings.Repeat("ab", 32), false: strings.Repeat("5", 88)}
	// Real payments, but to the other sellers: they prove nothing here.
	others := map[bool]string{
		true:  lab.PayV2("", lab.Seller+"/evm", "", "").Receipt.Transaction,
		false: lab.PayV2("", lab.Seller+"/svm", "", "").Receipt.Transaction,
	}
	for path, onEVM := range map[string]bool{"/seed/v1": false, "/seed/v2": false, "/seed/v1evm": true,
		"/seed/v2evm": true} {
		t.Run(path, func(t *testing.T) {
			at := lab.SellerSeed + path
			asked := get(t, at)
			require.Equal(t, http.StatusPaymentRequired, asked.StatusCode)
			want := seedOffer{Network: lab.SVM.Network, Amount: "1000", Asset: lab.SVM.Mint,
				PayTo: lab.SVM.SeedPayTo}
			if onEVM {
				want = seedOffer{Network: lab.EVM.Network, Amount: "1000", Asset: lab.EVM.Asset,
					PayTo: lab.EVM.SeedPayTo}
			}
			assert.Equal(t, want, seedOfferOf(t, asked.Header))

			for _, id := range []string{"", "paid", madeUp[onEVM], others[onEVM], others[!onEVM]} {
				assert.Equal(t, http.StatusPaymentRequired, get(t, at, header, id).StatusCode,
					"%s with %q",
					path, id)
			}
			paid := lab.paySeed(t, onEVM, price)
			assert.Equal(t, http.StatusPaymentRequired,
				get(t, at, header, lab.paySeed(t, onEVM, price+1)).StatusCode,
				"too much is not the price")
			assert.Equal(t, http.StatusOK, get(t, at, header, paid).StatusCode)
			assert.Equal(t, http.StatusPaymentRequired, get(t, at, header, paid).StatusCode,
				"a second time")
			if onEVM {
				assert.Equal(t, http.StatusPaymentRequired,
					get(t, at, header, "0x"+strings.ToUpper(paid[2:])).StatusCode, "spelled otherwise")
			}
		})
	}
	assert.NotEmpty(t, lab.SellerLog(PartSellerSeed))
}

func labConfig(t *testing.T, lab *Lab) {
	text := lab.Config(ConfigOptions{
		Budget: `session = "5.00"`, Policy: "max_timeout_seconds = 60", TokenAccount: "abc",
		Loopback: []string{"127.0.0.1:1"}, More: "[ledger]\nurl = \"\"\n",
	})
	var config struct {
		Budget       map[string]string
		Policy       map[string]any
		Networks     map[string]map[string]string
		Facilitators []map[string]string
		Ledger       map[string]string
	}
	require.NoError(t, toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields().Decode(&config),
		text)
	assert.Equal(t, "5.00", config.Budget["session"])
	assert.Equal(t, int64(60), config.Policy["max_timeout_seconds"])
	assert.Contains(t, config.Policy["loopback"], strings.TrimPrefix(lab.Seller, "http://"))
	assert.Contains(t, config.Policy["loopback"], "127.0.0.1:1")
	for network, node := range config.Networks { // tests never ask anybody's public node
		assert.Regexp(t, `^http://(127\.0\.0\.1|localhost):`, node["rpc"], network)
	}
	assert.Equal(t, map[string]string{"rpc": lab.EVM.URL}, config.Networks["eip155:84532"])
	assert.Equal(t, map[string]string{"rpc": lab.SVM.URL, "token_account": "abc"},
		config.Networks["solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"])
	assert.Equal(t, []map[string]string{
		{"name": "lab0", "url": lab.Facilitators[0], "auth": "none"},
		{"name": "lab1", "url": lab.Facilitators[1], "auth": "none"},
	}, config.Facilitators)
}

// TestLabEnds proves that a lab leaves no process behind, not even when it is killed.
func TestLabEnds(t *testing.T) {
	p, err := startProcess()
	require.NoError(t, err)
	t.Cleanup(p.stop)
	require.Contains(t, p.facts.PIDs, "anvil")
	require.NoError(t, p.cmd.Process.Kill())
	for name, pid := range p.facts.PIDs {
		assert.Eventually(t, func() bool { return !alive(pid) }, stopWait, 20*time.Millisecond, name)
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
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.NotRegexp(t, address, string(content), path)
		}
		return err
	}))
	assert.NotZero(t, seen)
}

// paysOnEVM checks that a payment of the reference payer moved exactly the price; gives the
// transaction.
func (l *Lab) paysOnEVM(t *testing.T, pay func() Paid) string {
	t.Helper()
	payer, payee := l.EVMBalance(l.EVM.Client.Address), l.EVMBalance(l.EVM.PayTo)
	transaction := paid(t, pay())
	assert.Equal(t, payer-price, l.EVMBalance(l.EVM.Client.Address))
	assert.Equal(t, payee+price, l.EVMBalance(l.EVM.PayTo))
	return transaction
}

func (l *Lab) paysOnSVM(t *testing.T, mint string, pay func() Paid) string {
	t.Helper()
	payer, payee := l.SVMBalance(l.SVM.Client.Address, mint), l.SVMBalance(l.SVM.PayTo, mint)
	transaction := paid(t, pay())
	assert.Equal(t, payer-price, l.SVMBalance(l.SVM.Client.Address, mint))
	assert.Equal(t, payee+price, l.SVMBalance(l.SVM.PayTo, mint))
	return transaction
}

func paid(t *testing.T, got Paid) string {
	t.Helper()
	require.Equal(t, http.StatusOK, got.Status, got.Body)
	require.NotNil(t, got.Receipt)
	require.True(t, got.Receipt.Success)
	require.NotEmpty(t, got.Receipt.Transaction)
	return got.Receipt.Transaction
}

// paySeed pays the seed's seller as a wallet does that settles itself; gives the transaction.
func (l *Lab) paySeed(t *testing.T, onEVM bool, amount uint64) string {
	t.Helper()
	if onEVM {
		return l.Settle(0, l.EVM.Network, l.EVM.Asset, l.EVM.SeedPayTo, amount)
	}
	return l.Settle(0, l.SVM.Network, l.SVM.Mint, l.SVM.SeedPayTo, amount)
}

// evmTime is the time of a block of the EVM chain.
func (l *Lab) evmTime(t *testing.T, tag string) int64 {
	t.Helper()
	var block struct{ Result struct{ Timestamp string } }
	call := `{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["` + tag + `",false]}`
	response, err := http.Post(l.EVM.URL, "application/json", strings.NewReader(call))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(bodyOf(t, response)), &block))
	seconds, err := strconv.ParseInt(block.Result.Timestamp, 0, 64)
	require.NoError(t, err)
	return seconds
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

type seedOffer struct{ Network, Amount, Asset, PayTo string }

// seedOfferOf reads the challenge of either of the seed's dialects.
func seedOfferOf(t *testing.T, header http.Header) seedOffer {
	t.Helper()
	if encoded := header.Get("X-Payment-Required"); encoded != "" {
		return challenge(t, encoded)[0]
	}
	return seedOffer{
		Network: header.Get("X-Payment-Network"), Amount: header.Get("X-Payment-Amount"),
		Asset: header.Get("X-Payment-Token"), PayTo: header.Get("X-Payment-Recipient"),
	}
}

func challenge(t *testing.T, header string) []seedOffer {
	t.Helper()
	decoded, err := base64.StdEncoding.DecodeString(header)
	require.NoError(t, err)
	var required struct {
		X402Version int
		Accepts     []seedOffer
	}
	require.NoError(t, json.Unmarshal(decoded, &required))
	require.Equal(t, 2, required.X402Version)
	require.NotEmpty(t, required.Accepts)
	return required.Accepts
}

// get asks for a URL with headers, name after value.
func get(t *testing.T, at string, headers ...string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	bodyOf(t, response)
	return response
}

func bodyOf(t *testing.T, response *http.Response) string {
	t.Helper()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}

func opsOf(calls []FacilitatorCall) []string {
	ops := []string{}
	for _, call := range calls {
		ops = append(ops, call.Op)
	}
	return ops
}
