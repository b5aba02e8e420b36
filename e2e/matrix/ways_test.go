package matrix

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

// way is a way to pay.
type way struct {
	name, seller, path string
	goods              string // a part of what is bought; "": goods
	// prepare funds the account that pays, and gives what the rules say of this way.
	prepare func(s *stand) testlab.ConfigOptions
	books

	price  uint64 // what moves for a purchase; 0: price
	counts uint64 // what is taken of a budget for it, in millionths of a dollar; 0: the price
	covers int    // how many purchases that is for; 0: one
	dear   string // what is not had again by signing in, and so costs

	// How a call is answered whose payment settled, and whose answer is lost; how the same call is answered
	// then; and the payment's state in the history after that.
	unheard, lost, after string
	serves               int // how often the seller serves it, and is paid; 0: once
}

// books are what the payer has paid so far, and what the payee has, by the records of the others.
type books struct{ spent, earned func(s *stand) uint64 }

// What the lab sells is in JSON that says so, and has one price, but by MPP, upto and Nuwa.
const (
	goods = `"ok":true`
	price = 1000
)

var ways = []way{
	{name: "exact EVM", seller: "lab", path: "/evm", prepare: ownEVM, books: ofEVM(agentsEVM)},
	{name: "exact Solana", seller: "lab", path: "/svm", prepare: ownSolana, books: ofSolana(agentsSolana)},
	{name: "exact Solana as delegate", seller: "lab", path: "/svm", prepare: asDelegate,
		books: ofSolana(func(s *stand) uint64 { return s.lab.SVMBalance(s.owner, "") })},
	{name: "allowance", seller: "lab", path: "/evm", prepare: withAllowance, books: ofEVM(
		func(s *stand) uint64 { return s.lab.EVMBalance(s.owner) + s.lab.EVMBalance(s.evm) })},
	{name: "vault", seller: "lab", path: "/evm", prepare: withVault, books: ofEVM(
		func(s *stand) uint64 { return s.lab.EVMBalance(s.owner) })},
	{name: "Permit2", seller: "lab", path: "/permit2/sponsored", prepare: ownEVM, books: ofEVM(agentsEVM)},
	{name: "upto", seller: "lab", path: "/upto/sponsored?charge=7000", prepare: ownEVM,
		books: ofEVM(agentsEVM), price: 7_000, counts: 20_000,
		lost: "PAYMENT_REJECTED", after: "unknown"}, // until it has expired
	{name: "batch-settlement", seller: "batch", path: "/paid", prepare: ownEVM,
		books: books{batchDeposits, batchVouchers}, counts: deposit, covers: deposit / price},
	{name: "MPP on EVM", seller: "mpp", path: "/evm-only", goods: "sunny", prepare: ownEVM,
		books: ofEVM(agentsEVM)},
	{name: "MPP on Solana", seller: "mpp", path: "/solana", goods: "sunny", prepare: ownSolana,
		books: ofSolana(agentsSolana)},
	{name: "MPP on Tempo", seller: "tempo", path: "/goods", goods: "here", prepare: onTempo,
		books: books{func(s *stand) uint64 { return funds - s.tempo.Balance(s.tempo.PathUSD, s.evm) },
			func(s *stand) uint64 { return s.tempo.Balance(s.tempo.PathUSD, s.tempo.Shop) }}, price: 10_000},
	{name: "sign-in", seller: "sign-in", path: "/evm", prepare: signsIn, books: ofEVM(agentsEVM),
		dear: "/plain", unheard: "NETWORK_ERROR", lost: "free"},
	// nothing in Nuwa's protocol says that a call is the same as the one before
	{name: "Nuwa", seller: "nuwa", path: "/api/echo", goods: "echo", prepare: withChannel,
		books: books{nuwaVouchers, nuwaVouchers}, price: 10_000_000, counts: price,
		unheard: "NETWORK_ERROR", lost: "paid", serves: 2},
}

// ofEVM are the books of a payer who had funds at first, and now has what has says.
func ofEVM(has func(s *stand) uint64) books {
	return books{func(s *stand) uint64 { return funds - has(s) },
		func(s *stand) uint64 { return s.lab.EVMBalance(s.lab.EVM.PayTo) }}
}

func ofSolana(has func(s *stand) uint64) books {
	return books{func(s *stand) uint64 { return funds - has(s) },
		func(s *stand) uint64 { return s.lab.SVMBalance(s.lab.SVM.PayTo, "") }}
}

func agentsEVM(s *stand) uint64    { return s.lab.EVMBalance(s.evm) }
func agentsSolana(s *stand) uint64 { return s.lab.SVMBalance(s.solana, "") }

func ownEVM(s *stand) (o testlab.ConfigOptions) {
	s.lab.EVMMint(s.evm, funds)
	return o
}

func onTempo(s *stand) testlab.ConfigOptions {
	s.tempo.Fund(s.evm, s.tempo.PathUSD, funds)
	return testlab.ConfigOptions{Loopback: s.tempo.Loopback(), More: s.tempo.Tables()}
}

func signsIn(s *stand) testlab.ConfigOptions {
	ownEVM(s)
	return testlab.ConfigOptions{Policy: `sign_in = "allow"`}
}

func ownSolana(s *stand) (o testlab.ConfigOptions) {
	s.lab.SVMFund(s.solana, "", funds)
	s.lab.SVMFund(s.lab.SVM.PayTo, "", 0)
	return o
}

// asDelegate lets the agent spend from an owner's token account, which the wallet finds by itself.
func asDelegate(s *stand) (o testlab.ConfigOptions) {
	name := "owner of " + s.solana
	s.owner = s.lab.SVMKey(name).Address
	s.lab.SVMFund(s.owner, "", funds)
	s.lab.SVMDelegate(name, s.solana, "", funds)
	return o
}

// newOwner is an account on EVM with money and coins for gas, and the file with its key.
func newOwner(s *stand) (address, file string) {
	key := must.Get(crypto.GenerateKey())(s.t)
	address = crypto.PubkeyToAddress(key.PublicKey).Hex()
	file = filepath.Join(s.t.TempDir(), "owner.hex")
	require.NoError(s.t, os.WriteFile(file, []byte(hexutil.Encode(crypto.FromECDSA(key))), 0o600))
	s.lab.EVMMint(address, funds)
	s.coins(address)
	return address, file
}

// coins gives an account 0.1 ether.
func (s *stand) coins(account string) {
	wei := fmt.Sprintf(`[%q, "0x16345785d8a0000"]`, account)
	testworld.AskNode(s.t, s.lab.EVM.URL, "anvil_setBalance", wei)
}

// withAllowance lets the agent take floats from an owner, each enough for two purchases.
func withAllowance(s *stand) testlab.ConfigOptions {
	address, file := newOwner(s)
	s.owner = address
	s.coins(s.evm)
	o := testlab.ConfigOptions{Owner: address, Float: "0.002"}
	s.seal(o)
	s.run(nil, "delegation", "approve", "--amount", "0.1", "--owner-keypair", file, "--network",
		s.lab.EVM.Network)
	return o
}

// withVault lets the agent pay from a vault of an owner's, where all the owner's money is.
func withVault(s *stand) testlab.ConfigOptions {
	_, file := newOwner(s)
	var made struct{ Vault string }
	s.run(&made, "vault", "deploy", "--per-payment", "0.01", "--per-period", "1", "--period", "1h",
		"--owner-keypair", file, "--network", s.lab.EVM.Network)
	s.owner = made.Vault
	o := testlab.ConfigOptions{Vault: made.Vault}
	s.seal(o)
	s.run(nil, "vault", "deposit", "--amount", "1", "--owner-keypair", file, "--network", s.lab.EVM.Network)
	return o
}

// deposit is what the seller of batch-settlement wants at first: ten purchases.
const deposit = 10 * price

// batchVouchers is what the newest voucher that the reference seller got promises.
func batchVouchers(s *stand) uint64 {
	for _, header := range s.door.sent() {
		var p struct {
			Payload struct {
				Voucher struct{ MaxClaimableAmount string }
			}
		}
		text := must.Get(base64.StdEncoding.DecodeString(header.Get("Payment-Signature")))(s.t)
		require.NoError(s.t, json.Unmarshal(text, &p))
		s.promises(p.Payload.Voucher.MaxClaimableAmount)
	}
	return s.promised
}

func (s *stand) promises(amount string) {
	if amount != "" {
		s.promised = max(s.promised, must.Get(strconv.ParseUint(amount, 10, 64))(s.t))
	}
}

// batchDeposits is the same, and that the chain moved a deposit for each ten purchases.
func batchDeposits(s *stand) uint64 {
	promised := batchVouchers(s)
	require.Equal(s.t, (promised+deposit-1)/deposit*deposit, funds-agentsEVM(s), "deposits on the chain")
	return promised
}

// nuwa is the reference server of Nuwa's kit, on a simulated Rooch node.
type nuwa struct {
	Rooch, HTTP string
	keys        []any // of all wallets so far, in the one DID that they pay for
}

const nuwaDID = "did:rooch:rooch19gqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqnvn7eg" // 0x2a00…

// withChannel opens a channel of the wallet's own account.
func withChannel(s *stand) testlab.ConfigOptions {
	s.nuwa.keys = append(s.nuwa.keys, map[string]string{"fragment": fmt.Sprint("key-", len(s.nuwa.keys)),
		"type": "Ed25519VerificationKey2020", "publicKeyMultibase": "z" + s.home.Solana})
	s.nuwa.post(s, "admin/did", map[string]any{"did": nuwaDID, "vms": s.nuwa.keys})
	s.nuwa.post(s, "admin/hub", map[string]any{"did": nuwaDID, "asset": "0x3::gas_coin::RGas",
		"amount": "100000000000"})
	o := testlab.ConfigOptions{Loopback: []string{s.nuwa.Rooch}, More: fmt.Sprintf(`[networks."rooch:local"]
rpc = %q
[channel]
did = %q
[servers.pages]
url = %q
channel = true
`, s.nuwa.Rooch, nuwaDID, s.door.URL+"/api")}
	s.seal(o)
	seen, err := s.home.AtTerminal(s.t, s.bin, testworld.Passphrase, "channel", "open", "pages")
	require.NoError(s.t, err, seen)
	var fee struct{ Transactions []struct{ Price string } }
	s.run(&fee, "history", "--json")
	for _, row := range fee.Transactions {
		cost := must.Get(money.ParseUnits(strings.TrimPrefix(row.Price, "$"), 6))(s.t)
		s.used, _ = cost.Uint64()
	}
	if s.setup.limit[0] != "session" { // the owner opens it, and no agent
		s.used = 0
	}
	return o
}

func (n nuwa) post(s *stand, path string, body any) {
	text := must.Get(json.Marshal(body))(s.t)
	said := must.Get(http.Post(n.Rooch+path, "application/json", bytes.NewReader(text)))(s.t)
	defer said.Body.Close()
	require.NotContains(s.t, string(must.Get(io.ReadAll(said.Body))(s.t)), `"error"`)
}

// nuwaVouchers is what the newest voucher that the reference server got promises. A call is paid by the
// voucher of the next one, or when the owner commits the last, of which the server says that it has it.
func nuwaVouchers(s *stand) uint64 {
	var said struct{ Committed bool }
	s.run(&said, "channel", "commit", "pages")
	for _, header := range s.door.sent() {
		var p struct {
			SignedSubRAV struct {
				SubRAV struct{ AccumulatedAmount string }
			}
		}
		text := must.Get(base64.RawURLEncoding.DecodeString(header.Get("X-Payment-Channel-Data")[1:]))(s.t)
		require.NoError(s.t, json.Unmarshal(text, &p))
		s.promises(p.SignedSubRAV.SubRAV.AccumulatedAmount)
	}
	return s.promised
}
