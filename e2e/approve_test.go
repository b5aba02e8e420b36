package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

type permit2Answer struct {
	Error, Message, Account, Amount, Balance, GasWei, TransactionHash, PaidGasWei string
}

func permit2Command(t *testing.T, lab *Lab, home testworld.Home, args ...string) (out permit2Answer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cliWait)
	defer cancel()
	args = append([]string{"delegation", "permit2", "--json", "--network", lab.EVM.Network}, args...)
	text, _ := home.Command(ctx, testworld.Build(t), args...).Output()
	require.NoError(t, json.Unmarshal(text, &out), "%s", text)
	return out
}

// The owner has the agent's account approve Permit2, by the command that the refusal names, with the
// passphrase that they type: for exactly as much as they say, which the chain then counts down.
func TestTheOwnerApprovesPermit2(t *testing.T) {
	lab := Start(t)
	w, home := funded(t, lab, ConfigOptions{})
	bin := testworld.Build(t)
	gas := func(wei string) { anvil(t, lab, "anvil_setBalance", home.EVM, wei) }
	sent := func() string { return string(anvil(t, lab, "eth_getTransactionCount", home.EVM, "latest")) }
	gas("0x0")
	p := payFor(t, w, lab.Seller+"/permit2")
	require.Equal(t, "NO_DELEGATION", p.Error, "%+v", p)
	line := "x402-wallet delegation permit2 --network " + lab.EVM.Network + " --asset USDC --amount 0.001"
	require.Equal(t, line, p.Next.Command)
	command := strings.Fields(line)[1:]

	require.Equal(t, "INSUFFICIENT_FUNDS", permit2Command(t, lab, home, "--amount", "0.001").Error)
	gas("0x2386f26fc10000") // 0.01
	// neither the file that unlocks the wallet for the agent is asked, nor an unlock agent
	runWallet(t, home, bin, nil, "unlock", "--passphrase-file", home.PassphraseFile, "--json")
	require.Equal(t, "WALLET_LOCKED", permit2Command(t, lab, home, "--amount", "0.001").Error)
	runWallet(t, home, bin, nil, "lock", "--json")
	seen, err := atTerminal(t, home, bin, "not the passphrase", command...)
	require.Error(t, err)
	require.Contains(t, seen, "INVALID_PASSPHRASE")
	require.Equal(t, `"0x0"`, sent(), "nothing was signed")
	require.Zero(t, lab.EVMAllowanceOfPermit2(home.EVM))

	seen, err = atTerminal(t, home, bin, testworld.Passphrase, command...)
	require.NoError(t, err, seen)
	for _, said := range []string{"Permit2 may move: 0.001 USDC", home.EVM, lab.EVM.Asset, "gas: up to 0.000",
		"transaction 0x", "gas 0.000"} {
		require.Contains(t, seen, said)
	}
	require.Equal(t, uint64(price), lab.EVMAllowanceOfPermit2(home.EVM))
	require.Equal(t, `"0x1"`, sent())
	p = buyAnew(t, w, lab.Seller+"/permit2")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Zero(t, lab.EVMAllowanceOfPermit2(home.EVM))

	seen, err = atTerminal(t, home, bin, testworld.Passphrase, "delegation", "permit2", "--network",
		lab.EVM.Network, "--amount", "0.0025")
	require.NoError(t, err, seen)
	require.Equal(t, "2500", permit2Command(t, lab, home).Amount)
	p = buyAnew(t, w, lab.Seller+"/permit2")
	require.Equal(t, "paid", p.Status, "%+v", p)
	shown := permit2Command(t, lab, home)
	require.Equal(t, []string{"1500", home.EVM, "998000", ""},
		[]string{shown.Amount, shown.Account, shown.Balance, shown.TransactionHash})

	seen, err = atTerminal(t, home, bin, testworld.Passphrase, "delegation", "permit2", "--network",
		lab.EVM.Network, "--revoke")
	require.NoError(t, err, seen)
	require.Zero(t, lab.EVMAllowanceOfPermit2(home.EVM))
	require.Equal(t, "NO_DELEGATION", buyAnew(t, w, lab.Seller+"/permit2").Error)

	count := sent()
	require.Equal(t, "INVALID_ARGUMENT", permit2Command(t, lab, home, "--amount", "-1").Error)
	require.Equal(t, "INVALID_ARGUMENT",
		permit2Command(t, lab, home, "--amount", "79228162514264337593543.950335").Error, "without a limit")
	require.Equal(t, "UNTRUSTED_ASSET", permit2Command(t, lab, home, "--asset", "XYZ").Error)
	// rules that the owner did not seal, which could name another token and another node
	rules := filepath.Join(home.Dir, "config.toml")
	text := must.Get(os.ReadFile(rules))(t)
	writePrivate(t, rules, strings.Replace(string(text), "[budget]", "[budget]\nmonth = \"9999\"", 1))
	require.Equal(t, "POLICY_UNSEALED", permit2Command(t, lab, home, "--amount", "1").Error)
	require.Equal(t, count, sent())
}

// Where the owner says what it may cost, an approval of Permit2 is signed that the seller sends in a
// transaction of the agent's account (erc20ApprovalGasSponsoring): for the price alone, which the payment
// uses up. The facilitator sends the account the coins for its gas.
func TestPaysByAnApprovalThatTheSellerSends(t *testing.T) {
	lab := Start(t)
	between := sellBy(t, lab.Seller)
	w, home := funded(t, lab, ConfigOptions{ApprovalGas: "0.01", Loopback: []string{between.url}})
	coins := func(wei string) { anvil(t, lab, "anvil_setBalance", home.EVM, wei) }

	coins("0x0")
	p := payFor(t, w, between.url+"/permit2/erc20")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, uint64(1_000_000-price), lab.EVMBalance(home.EVM))
	require.Zero(t, lab.EVMAllowanceOfPermit2(home.EVM))
	require.Equal(t, `"0x1"`, string(anvil(t, lab, "eth_getTransactionCount", home.EVM, "latest")))
	tx := between.payments.Load().approval(t)
	require.Equal(t, []string{home.EVM, lab.EVM.Asset}, []string{tx.From, tx.To})
	require.Equal(t, "0x095ea7b3"+ // approve, of Permit2 for the price: nothing else stands in it
		"000000000000000000000000000000000022d473030f116ddee9f6b43ac78ba3"+
		"00000000000000000000000000000000000000000000000000000000000003e8", hexutil.Encode(tx.Data))

	// of several at once each has an account nonce of its own
	var all sync.WaitGroup
	for _, path := range []string{"/permit2/erc20?i=1", "/permit2/erc20?i=2", "/permit2/erc20?i=3"} {
		all.Go(func() {
			p := payFor(t, w, between.url+path)
			if p.Status != "paid" {
				t.Errorf("%s: %+v", path, p)
			}
		})
	}
	all.Wait()
	require.Equal(t, uint64(1_000_000-4*price), lab.EVMBalance(home.EVM))
	require.Zero(t, lab.EVMAllowanceOfPermit2(home.EVM))

	// an approval that is enough is used, and none is sent
	lab.EVMApprovePermit2(home.EVM, price)
	before := string(anvil(t, lab, "eth_getTransactionCount", home.EVM, "latest"))
	p = buyAnew(t, w, between.url+"/permit2/erc20")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, before, string(anvil(t, lab, "eth_getTransactionCount", home.EVM, "latest")))

	// its gas is bounded: nothing is signed above that, and nothing held
	cheap, own := funded(t, lab, ConfigOptions{ApprovalGas: "0.000000000001"})
	p = payFor(t, cheap, lab.Seller+"/permit2/erc20")
	require.Equal(t, "POLICY_DENIED", p.Error, "%+v", p)
	require.Contains(t, p.Message, "approval_gas allows 0.000000000001")
	require.Equal(t, uint64(1_000_000), lab.EVMBalance(own.EVM))
	require.Equal(t, "failed", history(t, cheap)[0].Status)
}

func (p *permitOf) approval(t *testing.T) payload.SignedTransaction {
	t.Helper()
	info := p.Extensions[x402.ERC20Sponsoring].Info
	require.Equal(t, message.Permit2Address, info.Spender)
	raw := must.Get(hexutil.Decode(info.SignedTransaction))(t)
	return must.Get(payload.RecoverTransaction(raw))(t)
}
