package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/child/childtest"
	"x402-wallet/internal/must"
)

// hsm is a SoftHSM token with a key for each chain, asked by examples/signers/pkcs11.sh. The keys were made
// in it and cannot be read out of it.
type hsm struct {
	dir, module string
	script      string // by whose arguments a key is asked for
}

// softHSM makes a token. The programs are Debian's softhsm2, opensc and jq.
func softHSM(t *testing.T) hsm {
	const packages = "apt-get install -y --no-install-recommends softhsm2 opensc jq"
	for _, program := range []string{"softhsm2-util", "pkcs11-tool", "jq", "basenc"} {
		require.NoError(t, must.Err(exec.LookPath(program)), packages)
	}
	modules := must.Get(filepath.Glob("/usr/lib/*/softhsm/libsofthsm2.so"))(t)
	modules = append(modules, "/usr/lib/softhsm/libsofthsm2.so")
	h := hsm{dir: t.TempDir(), module: modules[0]}
	require.NoError(t, os.Mkdir(filepath.Join(h.dir, "tokens"), 0o700))
	config := filepath.Join(h.dir, "softhsm2.conf")
	writePrivate(t, config, "directories.tokendir = "+filepath.Join(h.dir, "tokens")+"\n")
	writePrivate(t, filepath.Join(h.dir, "pin"), "648219")
	writePrivate(t, filepath.Join(h.dir, "mode"), "")
	run := func(program string, args ...string) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "SOFTHSM2_CONF="+config)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	run("softhsm2-util", "--init-token", "--free", "--label", "x402", "--so-pin", "12345678", "--pin",
		"648219")
	for id, curve := range map[string]string{"01": "secp256k1", "02": "edwards25519", "03": "secp256k1"} {
		run("pkcs11-tool", "--module", h.module, "--token-label", "x402", "--login", "--pin", "648219",
			"--keypairgen", "--key-type", "EC:"+curve, "--id", id)
	}
	example := must.Get(filepath.Abs("../examples/signers/pkcs11.sh"))(t)
	h.script = filepath.Join(h.dir, "sign.sh")
	// mode is a word by which the test has the signer misbehave when it is to sign.
	childtest.Write(t, h.script, fmt.Sprintf(`export SOFTHSM2_CONF=%[1]s/softhsm2.conf
pkcs11() { exec %[2]s %[3]s x402 "$1" %[1]s/pin; }
request=$(cat)
printf '%%s\n' "$request" >> %[1]s/asked
case $request in *'"op":"sign"'*)
    case $(cat %[1]s/mode) in
    "another key") printf '%%s' "$request" | pkcs11 03 ;;
    "another order") printf '%%s' "$request" | sed 's/"digest":"../"digest":"00/' | pkcs11 "$1" ;;
    silence) exec sleep 600 ;;
    "its end") kill -9 $$ ;;
    garbage) printf '\033[2J{"version":1,"signature":7' ; exit 0 ;;
    "too much") exec cat /dev/zero ;;
    "a refusal") echo '{"version":1,"error":"nobody pressed the button"}' ; exit 1 ;;
    esac ;;
esac
printf '%%s' "$request" | pkcs11 "$1"
`, h.dir, example, h.module))
	return h
}

// add has the owner add both keys as signers of a wallet, whose addresses it returns.
func (h hsm) add(t *testing.T, bin string, home testworld.Home) (onEVM, onSolana string) {
	for _, chain := range []string{"evm", "solana"} {
		id := map[string]string{"evm": "01", "solana": "02"}[chain]
		seen, err := atTerminal(t, home, bin, testworld.Passphrase, "signer", "add", "hsm-"+chain,
			"--chain", chain, "--timeout", "60s", "--", h.script, id)
		require.NoError(t, err, seen)
	}
	var list struct {
		Signers []struct{ Chain, Name, Kind, Address string }
	}
	runWallet(t, home, bin, &list, "signer")
	require.Len(t, list.Signers, 2)
	for _, s := range list.Signers {
		require.Equal(t, []string{"hsm-" + s.Chain, "command"}, []string{s.Name, s.Kind})
	}
	onEVM, onSolana = list.Signers[0].Address, list.Signers[1].Address
	require.NotContains(t, []string{home.EVM, home.Solana}, onEVM)
	return onEVM, onSolana
}

func (h hsm) behave(t *testing.T, mode string) {
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "mode"), []byte(mode), 0o600))
}

func (h hsm) orders(t *testing.T) (list []map[string]any) {
	file := must.Get(os.Open(filepath.Join(h.dir, "asked")))(t)
	defer file.Close()
	for d := json.NewDecoder(file); d.More(); {
		var q map[string]any
		require.NoError(t, d.Decode(&q))
		if q["op"] == "sign" {
			list = append(list, q)
		}
	}
	return list
}

// A wallet whose keys are in an HSM alone pays on real chains, to reference sellers, and what the HSM answers
// is verified: whatever it does wrong, nothing is sent and the money is free again.
func TestPaysByAnHSM(t *testing.T) {
	lab := Start(t)
	hsm, bin := softHSM(t), testworld.Build(t)
	home := testworld.NewHome(t, lab.Config(ConfigOptions{Budget: plenty}))
	onEVM, onSolana := hsm.add(t, bin, home)
	lab.EVMMint(onEVM, 1_000_000)
	lab.SVMFund(onSolana, "", 1_000_000)
	runWallet(t, home, bin, nil, "signer", "test", "hsm-evm")
	report, _ := home.Command(t.Context(), bin, "doctor").Output() // what else it finds is not asked here
	require.Contains(t, string(report), "the signer hsm-evm is there, with the key of "+onEVM)
	w := testworld.StartWallet(t, bin, home)

	t.Run("EVM", func(t *testing.T) {
		lab := lab.For(t)
		p := payFor(t, w, lab.Seller+"/evm")
		require.Equal(t, "paid", p.Status, "%+v", p)
		require.Equal(t, []EVMTransfer{{From: onEVM, To: lab.EVM.PayTo, Amount: price}},
			lab.EVMTransfers(p.TransactionSignature))
		orders := hsm.orders(t)
		order := orders[len(orders)-1]
		require.Equal(t, []any{"typed-data", onEVM}, []any{order["kind"], order["address"]})
		message := order["payload"].(map[string]any)["message"].(map[string]any)
		require.Equal(t, []any{onEVM, lab.EVM.PayTo, "1000"}, []any{message["from"], message["to"],
			message["value"]}, "a person can be shown what is signed")
	})
	t.Run("Solana", func(t *testing.T) {
		lab := lab.For(t)
		p := payFor(t, w, lab.Seller+"/svm")
		require.Equal(t, "paid", p.Status, "%+v", p)
		changes := map[string]int64{}
		for _, change := range lab.SVMChanges(p.TransactionSignature) {
			changes[change.Owner] = change.Change
		}
		require.Equal(t, map[string]int64{onSolana: -price, lab.SVM.PayTo: price}, changes)
	})
	t.Run("Permit2, which the owner approves", func(t *testing.T) {
		lab := lab.For(t)
		anvil(t, lab, "anvil_setBalance", onEVM, "0x2386f26fc10000")
		seen, err := atTerminal(t, home, bin, testworld.Passphrase, "delegation", "permit2", "--network",
			lab.EVM.Network, "--amount", "0.001")
		require.NoError(t, err, seen)
		require.Equal(t, uint64(price), lab.EVMAllowanceOfPermit2(onEVM))
		p := payFor(t, w, lab.Seller+"/permit2")
		require.Equal(t, "paid", p.Status, "%+v", p)
		require.Zero(t, lab.EVMAllowanceOfPermit2(onEVM))
	})
	for mode, code := range map[string]string{"another key": "SETUP_FAILED", "another order": "SETUP_FAILED",
		"silence": "TIMEOUT", "its end": "SETUP_FAILED", "garbage": "SETUP_FAILED",
		"too much":  "SETUP_FAILED",
		"a refusal": "SETUP_FAILED"} {
		t.Run(mode, func(t *testing.T) {
			lab := lab.For(t)
			hsm.behave(t, mode)
			defer hsm.behave(t, "")
			if mode == "silence" { // of which a minute need not be waited for
				rules := must.Get(os.ReadFile(filepath.Join(home.Dir, "config.toml")))(t)
				withConfig(t, home, bin, strings.ReplaceAll(string(rules), `timeout = "1m0s"`,
					`timeout = "1s"`))
				defer withConfig(t, home, bin, string(rules))
			}
			lab.ResetLogs()
			asked, had := len(hsm.orders(t)), lab.EVMBalance(onEVM)
			p := payFor(t, w, lab.Seller+"/evm?of="+filepath.Base(t.Name()))
			require.Equal(t, []string{code, "0"}, []string{p.Error, p.Spent}, "%+v", p)
			require.Contains(t, p.Message, "hsm-evm")
			require.NotContains(t, p.Message, "\033")
			require.Len(t, hsm.orders(t), asked+1)
			for _, r := range lab.SellerLog(testlab.PartSeller) {
				require.Empty(t, r.Headers["payment-signature"], "nothing was sent")
			}
			require.Equal(t, had, lab.EVMBalance(onEVM))
			require.Equal(t, "0.00", heldNow(t, w), "the hold was released")
		})
	}
	p := payFor(t, w, lab.Seller+"/evm?again")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.NoError(t, w.Close())
	t.Run("locked", func(t *testing.T) { locksWithAnHSM(t, lab.For(t), hsm, bin, home) })
}

// locksWithAnHSM: the unlock agent asks the signer, and once the wallet is locked nobody does.
func locksWithAnHSM(t *testing.T, lab *Lab, hsm hsm, bin string, home testworld.Home) {
	seen, err := atTerminal(t, home, bin, testworld.Passphrase, "unlock")
	require.NoError(t, err, seen)
	w := testworld.StartWalletWith(t, bin, home, WalletOptions{Env: []string{"X402_WALLET_PASSPHRASE_FILE="}})
	for path, query := range map[string]string{"/evm": "?unlocked", "/svm": ""} {
		p := buyAnew(t, w, lab.Seller+path+query)
		require.Equal(t, "paid", p.Status, "%+v", p)
	}
	runWallet(t, home, bin, nil, "lock")
	asked := len(hsm.orders(t))
	p := payFor(t, w, lab.Seller+"/evm?locked")
	require.Equal(t, []string{"WALLET_LOCKED", "0"}, []string{p.Error, p.Spent}, "%+v", p)
	require.Len(t, hsm.orders(t), asked)

	seen, err = atTerminal(t, home, bin, "not the passphrase", "signer", "remove", "hsm-evm")
	require.Error(t, err)
	require.Contains(t, seen, "INVALID_PASSPHRASE")
	seen, err = atTerminal(t, home, bin, testworld.Passphrase, "signer", "remove", "hsm-evm")
	require.NoError(t, err, seen)
	require.Contains(t, seen, home.EVM)
	var list struct {
		Addresses []struct{ Chain, Address string }
	}
	runWallet(t, home, bin, &list, "address")
	for _, a := range list.Addresses {
		require.Equal(t, a.Chain == "evm", a.Address == home.EVM, "the keystore signs again, where it does")
	}
}

func heldNow(t *testing.T, w *Wallet) string {
	r := must.Get(w.Call(t.Context(), "x402_check_balance", map[string]any{}))(t)
	out := must.JSON[struct {
		Budget struct{ Day struct{ Held string } }
	}](r.Structured)(t)
	return out.Budget.Day.Held
}
