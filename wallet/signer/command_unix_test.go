//go:build unix

package signer

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/child/childtest"
	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// commandIn is a signer that is a script, which has a directory of the test's own as $0 and in it what it was
// asked.
func commandIn(t *testing.T, k kept, script string) (s *Signer, dir string) {
	dir = t.TempDir()
	o := options()
	o.Said = func(text string) { _ = os.WriteFile(filepath.Join(dir, "said"), []byte(text), 0o600) }
	return New("hsm", config.Signer{Kind: config.SignerCommand, Chain: k.chain, Address: k.address(),
		Timeout: 30 * time.Second,
		Command: childtest.Script(dir, `cat > "$0/asked"; `+script)}, o), dir
}

// answersWith is a script that prints a text.
func answersWith(text string) string { return "cat <<'END'\n" + text + "\nEND\n" }

func signatureText(k kept, o wallet.Order) string {
	if k.chain == wallet.ChainSolana {
		return hex.EncodeToString(k.sign("", o.Payload))
	}
	return hex.EncodeToString(k.sign("", o.Digest[:]))
}

// What a command is asked, to the letter: docs/rules.md has these lines.
func TestWhatACommandIsAsked(t *testing.T) {
	evm, solana := newKept(t, wallet.ChainEVM), newKept(t, wallet.ChainSolana)
	typed := wallet.Order{Chain: wallet.ChainEVM, Kind: wallet.TypedData,
		Payload: []byte(`{"primaryType":"X"}`),
		Digest:  [32]byte{31: 7}}
	raw := wallet.Order{Chain: wallet.ChainEVM, Kind: wallet.Transaction, Payload: []byte{2, 0xc0},
		Digest: [32]byte{1}}
	message := wallet.Order{Chain: wallet.ChainSolana, Kind: wallet.Transaction, Payload: []byte{0x80, 1}}
	text := wallet.Order{Chain: wallet.ChainSolana, Kind: wallet.Text, Payload: []byte("sign in")}
	digest := strings.Repeat("00", 31)
	for name, c := range map[string]struct {
		kept
		order wallet.Order
		want  string
	}{
		"typed data": {evm, typed, `"kind":"typed-data","payload":{"primaryType":"X"},"digest":"` +
			digest + `07"`},
		"transaction": {evm, raw, `"kind":"transaction","payload":"02c0","digest":"01` + digest + `"`},
		"message":     {solana, message, `"kind":"transaction","payload":"8001","message":"8001"`},
		"text":        {solana, text, `"kind":"text","payload":"sign in","message":"7369676e20696e"`},
	} {
		t.Run(name, func(t *testing.T) {
			signer, dir := commandIn(t, c.kept, answersWith(`{"version":1,"signature":"0x`+
				signatureText(c.kept, c.order)+`"}`))
			must.Get(wallet.SignBy(t.Context(), signer, c.order))(t)
			asked := must.Get(os.ReadFile(filepath.Join(dir, "asked")))(t)
			require.Equal(t,
				fmt.Sprintf(`{"version":1,"op":"sign","signer":"hsm","chain":"%s","address":"%s",%s}`+"\n",
					c.chain, c.address(), c.want), string(asked))
			require.True(t, json.Valid(asked))
		})
	}
	signer, dir := commandIn(t, evm, answersWith(`{"version":1,"address":"`+evm.address()+`"}`))
	require.NoError(t, signer.Check(t.Context()))
	asked := must.Get(os.ReadFile(filepath.Join(dir, "asked")))(t)
	require.Equal(t, `{"version":1,"op":"address","signer":"hsm","chain":"evm"}`+"\n", string(asked))
}

// A command may answer a public key, and a signature in DER, as HSMs have them.
func TestACommandsFormats(t *testing.T) {
	order := wallet.Order{Chain: wallet.ChainEVM, Kind: wallet.Transaction, Payload: []byte{2},
		Digest: [32]byte{9}}
	for _, chain := range []string{wallet.ChainEVM, wallet.ChainSolana} {
		k := newKept(t, chain)
		for _, key := range []string{hex.EncodeToString(k.spki(t)), "0x" + hex.EncodeToString(k.spki(t))} {
			signer, _ := commandIn(t, k, answersWith(`{"version":1,"publicKey":"`+key+`"}`))
			require.NoError(t, signer.Check(t.Context()))
		}
	}
	k := newKept(t, wallet.ChainEVM)
	for _, high := range []bool{false, true} {
		text := hex.EncodeToString(der(k.sign("", order.Digest[:]), high))
		signer, _ := commandIn(t, k, answersWith(`{"version":1,"signature":"`+text+`"}`))
		must.Get(wallet.SignBy(t.Context(), signer, order))(t)
	}
}

// Whatever a command does wrong ends in a refusal in time, with nothing of its standard error in it: that is
// for its owner's terminal.
func TestACommandThatFails(t *testing.T) {
	k := newKept(t, wallet.ChainEVM)
	for name, c := range map[string]struct {
		script, says string
		code         x402.Code
	}{
		"nothing": {"exit 0", "something else than", x402.SetupFailed},
		"fails":   {"echo PIN 1234 >&2; exit 3", "exit status 3", x402.SetupFailed},
		"refuses": {`echo '{"version":1,"error":"no \u001b[2J button"}'; exit 1`,
			`no \x1b[2J button`, x402.SetupFailed},
		"garbage":         {`printf '\000\033[2J'`, "something else than", x402.SetupFailed},
		"another version": {`echo '{"version":2,"signature":"00"}'`, "something else than", x402.SetupFailed},
		"two answers": {`echo '{"version":1,"error":"x"}{"version":1}'`, "something else than",
			x402.SetupFailed},
		"twice a key": {`echo '{"version":1,"error":"x","error":""}'`, "something else than",
			x402.SetupFailed},
		"no hexadecimal": {`echo '{"version":1,"signature":"zz"}'`, "hexadecimal", x402.SetupFailed},
		"no signature":   {`echo '{"version":1}'`, "hexadecimal", x402.SetupFailed},
		"no DER": {`echo '{"version":1,"signature":"` + strings.Repeat("30", 70) + `"}'`,
			"something else than a signature", x402.SetupFailed},
		"too much":  {"exec cat /dev/zero", "more than 16384 bytes", x402.SetupFailed},
		"is killed": {"kill -9 $$", "signal: killed", x402.SetupFailed},
	} {
		t.Run(name, func(t *testing.T) {
			signer, dir := commandIn(t, k, c.script)
			err := wallet.TestSigner(t.Context(), signer, k.chain, now)
			require.ErrorContains(t, err, c.says)
			require.True(t, x402.HasCode(err, c.code), "%v", err)
			require.NotContains(t, err.Error(), "1234")
			require.NotContains(t, err.Error(), "\x1b")
			if name == "fails" {
				require.Equal(t, "PIN 1234", string(must.Get(os.ReadFile(filepath.Join(dir, "said")))(t)))
			}
		})
	}
	signer, _ := commandIn(t, k, "")
	signer.keeper = command{rules: signer.rules, program: options().Program([]string{"/none"}, nil, nil)}
	require.True(t, x402.HasCode(signer.Check(t.Context()), x402.SetupFailed))
}

// A command that hangs is killed in time, and with it all that it started.
func TestACommandThatHangs(t *testing.T) {
	for name, script := range map[string]string{
		"itself":      `echo $$ > "$0/pid"; exec sleep 600`,
		"its child":   `sleep 600 & echo $! > "$0/pid"; wait`,
		"does not go": `trap "" TERM INT HUP; echo $$ > "$0/pid"; while :; do sleep 1; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signer, dir := commandIn(t, newKept(t, wallet.ChainEVM), script)
			signer.rules.Timeout = time.Second
			err := signer.Check(t.Context())
			require.True(t, x402.HasCode(err, x402.Timeout), "%v", err)
			text, err := os.ReadFile(filepath.Join(dir, "pid"))
			if err != nil { // on a busy machine its time was over before it began
				return
			}
			childtest.WaitGone(t, string(text))
		})
	}
}

// Credentials come from where the rules say, and nothing of them is in an error.
func TestCredentials(t *testing.T) {
	const good = `{"AccessKeyId":"a","SecretAccessKey":"secret-0123"}`
	public := filepath.Join(t.TempDir(), "public")
	require.NoError(t, os.WriteFile(public, []byte(good), 0o644))
	t.Setenv("SIGNER_TEST_SECRET", good)
	for name, c := range map[string]struct {
		rules config.Signer
		says  string // "": it works
	}{
		"file":    {config.Signer{SecretFile: secretFile(t, good)}, ""},
		"for all": {config.Signer{SecretFile: public}, "chmod 600"},
		"no file": {config.Signer{SecretFile: public + "x"}, "secret_file could not be read"},
		"no JSON": {config.Signer{SecretFile: secretFile(t, `{"secret-0123`)},
			"cannot be read as JSON"},
		"variable":    {config.Signer{SecretEnv: "SIGNER_TEST_SECRET"}, ""},
		"no variable": {config.Signer{SecretEnv: "SIGNER_TEST_NONE"}, "SIGNER_TEST_NONE is not set"},
		"command":     {config.Signer{SecretCommand: []string{"/bin/echo", good}}, ""},
		"fails": {config.Signer{SecretCommand: childtest.Script("", "echo secret-0123; exit 1")},
			"secret_command failed"},
		"prints nothing": {config.Signer{SecretCommand: []string{"/bin/true"}}, "printed nothing"},
		"too much":       {config.Signer{SecretCommand: []string{"/bin/cat", "/dev/zero"}}, "too much"},
	} {
		t.Run(name, func(t *testing.T) {
			var keys awsKeys
			_, err := (&credentials{rules: c.rules, options: options()}).read(t.Context(), &keys)
			if c.says == "" {
				require.NoError(t, err)
				require.Equal(t, "secret-0123", keys.SecretAccessKey)
				return
			}
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "secret-0123")
		})
	}
}

// What secret_command printed is used for a minute, or until a minute before its own end.
func TestSecretCommandIsAskedAgain(t *testing.T) {
	dir := t.TempDir()
	at := now
	o := options()
	o.Now = func() time.Time { return at }
	c := &credentials{options: o, rules: config.Signer{SecretCommand: childtest.Script(dir,
		`echo x >> "$0/runs"; cat "$0/secret"`)}}
	runs := func() int {
		var keys awsKeys
		must.Get(c.read(t.Context(), &keys))(t)
		text := must.Get(os.ReadFile(filepath.Join(dir, "runs")))(t)
		return len(strings.Fields(string(text)))
	}
	secret := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte(text), 0o600))
	}
	secret(`{"AccessKeyId":"a"}`)
	require.Equal(t, []int{1, 1}, []int{runs(), runs()})
	at = at.Add(61 * time.Second)
	secret(`{"AccessKeyId":"a","Expiration":"2026-11-26T12:01:30Z"}`)
	require.Equal(t, []int{2, 3}, []int{runs(), runs()}, "it is over within a minute, so it is not kept")
}
