package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/schemes"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

const sandboxWait = 2 * time.Minute

type playSandbox struct {
	Event, Seller, Facilitator, Control, Config, Note string
	Nodes, PayTo                                      map[string]string
	Accounts                                          []struct{ Network, Address, PlayKey string }

	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan sandboxLine
	ended chan error
}

type sandboxLine struct {
	Event, Network, Transaction, Payer, PayTo, Amount, Price, Nonce, Path string
}

// startSandbox starts the command, which ends with the test at the latest.
func startSandbox(t *testing.T, args ...string) *playSandbox {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &playSandbox{lines: make(chan sandboxLine, 1000), ended: make(chan error, 1)}
	s.cmd = exec.CommandContext(ctx, testworld.Build(t), append([]string{"sandbox"}, args...)...)
	s.cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	s.cmd.Stderr = os.Stderr
	var err error
	s.stdin = must.Get(s.cmd.StdinPipe())(t)
	out := must.Get(s.cmd.StdoutPipe())(t)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		cancel()
		<-s.ended
	})
	read := bufio.NewReader(out)
	first, err := read.ReadString('\n')
	go func() {
		decoder := json.NewDecoder(read)
		for {
			var line sandboxLine
			if decoder.Decode(&line) != nil {
				break
			}
			s.lines <- line
		}
		close(s.lines)
		s.ended <- s.cmd.Wait()
		close(s.ended)
	}()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(first), s), first)
	require.Equal(t, "ready", s.Event)
	return s
}

func (s *playSandbox) next(t *testing.T) sandboxLine {
	t.Helper()
	select {
	case line, ok := <-s.lines:
		require.True(t, ok, "the sandbox ended")
		return line
	case <-time.After(sandboxWait):
		require.Fail(t, "the sandbox prints nothing")
		return sandboxLine{}
	}
}

func (s *playSandbox) tell(t *testing.T, script string) {
	t.Helper()
	answer := must.Get(http.Post(s.Control+"/script", "application/json", strings.NewReader(script)))(t)
	said := bodyOf(t, answer)
	require.Equal(t, http.StatusOK, answer.StatusCode, said)
}

// blocks are the examples of docs/selling.md in a language, in their order.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	page := must.Get(os.ReadFile("../docs/selling.md"))(t)
	var list []string
	block := regexp.MustCompile("(?s)\n```" + language + "\n(.*?)\n```\n")
	for _, m := range block.FindAllStringSubmatch(string(page), -1) {
		list = append(list, m[1])
	}
	return list
}

// runNode runs an example as it stands, beside the lab's npm packages.
func runNode(t *testing.T, text string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	modules := must.Get(filepath.Abs("lab/parties/node_modules"))(t)
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	file := filepath.Join(dir, "example.mjs")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), sandboxWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{"--preserve-symlinks", file}, args...)...)
	bin := filepath.Dir(testworld.Build(t))
	cmd.Env = append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "is the lab prepared? (make prep)\n%s", out)
	return string(out)
}

// TestTestingPage runs every example of docs/selling.md as it stands; those in Go are in x402test.
func TestTestingPage(t *testing.T) {
	t.Run("Go", func(t *testing.T) {
		source := must.Get(os.ReadFile("../x402test/example_test.go"))(t)
		examples := blocks(t, "go")
		require.Len(t, examples, 1)
		require.Contains(t, string(source), "\n"+examples[0]+"\n")
	})
	typescript := blocks(t, "ts")
	require.Len(t, typescript, 1)
	t.Run("@x402/fetch", func(t *testing.T) {
		require.Regexp(t, `^paid 0x[0-9a-f]{64}\n$`, runNode(t, typescript[0]))
	})
	s := startSandbox(t)
	t.Run("curl", func(t *testing.T) { examplesOfCurl(t, s) })
}

func examplesOfCurl(t *testing.T, s *playSandbox) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	var said []string
	for _, example := range blocks(t, "sh") {
		if !strings.HasPrefix(example, "curl") {
			continue
		}
		here := strings.NewReplacer("http://127.0.0.1:4021", s.Seller, "http://127.0.0.1:4025", s.Control)
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", here.Replace(example))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		said = append(said, string(out))
	}
	require.Len(t, said, 2)
	shown := blocks(t, "json")
	require.Len(t, shown, 1)
	require.JSONEq(t, strings.ReplaceAll(shown[0], "http://127.0.0.1:4021", s.Seller), said[0])
	require.Contains(t, said[1], `{"fault":"seller hangs","path":"/premium","times":2}`)
	require.True(t, strings.HasSuffix(said[1], "{\"payments\":[]}\n"), said[1])
	asked := challenge(t, get(t, s.Seller+"/premium").Header.Get("PAYMENT-REQUIRED"))
	require.Len(t, asked, 2)
	require.Equal(t, "50000", asked[1].Amount)
}

// TestSandboxTheWallet: our own wallet, made with the config that the sandbox prints, buys there; a seller
// that loses its answer after it settled is asked again with the same payment, and paid once.
func TestSandboxTheWallet(t *testing.T) {
	s := startSandbox(t)
	home := testworld.NewHome(t, "")
	rules := filepath.Join(filepath.Dir(home.Dir), "sandbox.toml")
	require.NoError(t, os.WriteFile(rules, []byte(s.Config), 0o600))
	command := func(args ...string) (answer map[string]any) {
		out, err := home.Command(t.Context(), testworld.Build(t), append(args, "--json")...).Output()
		require.NoError(t, err, "%s", out)
		require.NoError(t, json.Unmarshal(out, &answer), "%s", out)
		return answer
	}
	made := command("init", "--config", rules, "--passphrase-file", home.PassphraseFile)
	byChain := map[string]string{}
	for _, a := range made["addresses"].([]any) {
		byChain[a.(map[string]any)["chain"].(string)] = a.(map[string]any)["address"].(string)
	}
	s.tell(t, `{"products":{"/premium":{"price":"0.05","content":"{\"premium\":true}"}},
		"faults":[{"fault":"seller cuts","path":"/premium"}],
		"fund":[{"address":"`+byChain["evm"]+`","amount":"1.00"}],
		"delegate":{"address":"`+byChain["solana"]+`","amount":"0.50"}}`)
	require.Equal(t, "paid", command("pay", "--json", s.Seller+"/weather")["status"])
	require.Equal(t, "paid", command("pay", "--json", s.Seller+"/solana")["status"])
	for range 2 { // the answer was cut in its middle; asked again the seller does not take a used nonce
		again := home.Command(t.Context(), testworld.Build(t), "pay", s.Seller+"/premium", "--json")
		out, err := again.Output()
		require.Error(t, err)
		require.Contains(t, string(out), `"paid_not_served"`)
	}
	for _, want := range []sandboxLine{{Path: "/weather", Price: "0.001", Payer: byChain["evm"]},
		{Path: "/solana", Price: "0.001"}, {Path: "/premium", Price: "0.05", Payer: byChain["evm"]}} {
		paid := s.next(t)
		require.Equal(t, []string{want.Path, want.Price}, []string{paid.Path, paid.Price})
		if want.Payer != "" {
			require.Equal(t, want.Payer, paid.Payer)
		}
	}
	var state struct{ Signatures, Presentations int }
	answer := must.Get(http.Get(s.Control + "/state"))(t)
	require.NoError(t, json.Unmarshal([]byte(bodyOf(t, answer)), &state))
	require.Equal(t, []int{3, 4}, []int{state.Signatures, state.Presentations})
	require.Empty(t, s.lines)
}

// TestSandboxEnds: by a signal, and where it was asked for by its stdin's end, with exit code 0 and nothing
// left behind; else with a message.
func TestSandboxEnds(t *testing.T) {
	for name, end := range map[string]func(s *playSandbox) error{
		"SIGINT":  func(s *playSandbox) error { return s.cmd.Process.Signal(os.Interrupt) },
		"SIGTERM": func(s *playSandbox) error { return s.cmd.Process.Signal(syscall.SIGTERM) },
		"stdin":   func(s *playSandbox) error { return s.stdin.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := startSandbox(t, "--until-eof")
			// even while somebody has not asked to the end
			half := must.Get(net.Dial("tcp", strings.TrimPrefix(s.Seller, "http://")))(t)
			t.Cleanup(func() { half.Close() })
			must.Get(io.WriteString(half, "GET /weather HTTP/1.1\r\n"))(t)
			require.NoError(t, end(s))
			select {
			case err := <-s.ended:
				require.NoError(t, err)
			case <-time.After(sandboxWait):
				require.Fail(t, "it runs on")
			}
		})
	}
	s := startSandbox(t) // without --until-eof the end of stdin is nothing
	require.NoError(t, s.stdin.Close())
	s.tell(t, `{"heal":true}`)
	port := s.Seller[strings.LastIndexByte(s.Seller, ':')+1:]
	script := filepath.Join(t.TempDir(), "bad.json")
	require.NoError(t, os.WriteFile(script, []byte(`{"product":{}}`), 0o600))
	for want, args := range map[string][]string{
		"choose another --port": {"--port", port}, "is 1 to 65531": {"--port", "65532"},
		"this is no script": {"--script", script}, "--script: ": {"--script", script + "x"},
		"not a": {"--fund", "0x12"}} {
		cmd := exec.CommandContext(t.Context(), testworld.Build(t), append([]string{"sandbox"}, args...)...)
		out, err := cmd.Output()
		require.Error(t, err, args)
		require.Contains(t, string(out), want, args)
	}
}

// TestReferenceClientPaysTheSandbox: @x402/fetch with @x402/evm and @x402/svm pays what the sandbox sells on
// both chains, and its receipts are what the reference expects, and true.
func TestReferenceClientPaysTheSandbox(t *testing.T) {
	s := startSandbox(t)
	answers := referencePays(t, s.Seller, s.Nodes[s.Accounts[1].Network], s.Accounts[0].PlayKey,
		s.Accounts[1].PlayKey, "/weather", "/solana")
	for i, got := range answers {
		paid, account := s.next(t), s.Accounts[i]
		require.Equal(t, referenceAnswer{http.StatusOK, true, paid.Transaction, account.Network,
			account.Address}, got)
		require.Equal(t, "0.001", paid.Price)
	}
}

// TestReferenceClientPaysByPermit2: it pays the seller of e2e/schemes by Permit2.
func TestReferenceClientPaysByPermit2(t *testing.T) {
	s := must.Get(schemes.Start(sandbox.Options{}))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	onEVM := must.Get(s.NewAccount("evm", sandbox.USDC))(t)
	onSolana := must.Get(s.NewAccount("solana", 0))(t)
	s.Approve(onEVM.Address, sandbox.USDC)
	got := referencePays(t, s.SellerURL, s.SolanaNodeURL, onEVM.PlayKey, onSolana.PlayKey, "/permit2")[0]
	paid := s.Settlements()
	require.Len(t, paid, 1)
	require.Equal(t, referenceAnswer{http.StatusOK, true, paid[0].Transaction, sandbox.EVM,
		onEVM.Address}, got)
	require.Equal(t, schemes.Price("/permit2"), paid[0].Amount)
}

type referenceAnswer struct {
	Status                      int
	Success                     bool
	Transaction, Network, Payer string
}

func referencePays(t *testing.T, seller, node, onEVM, onSolana string, paths ...string) (
	list []referenceAnswer) {
	t.Helper()
	said := runNode(t, `
		import { createKeyPairSignerFromBytes, getBase58Encoder } from '@solana/kit';
		import { ExactEvmScheme } from '@x402/evm';
		import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from '@x402/fetch';
		import { ExactSvmScheme } from '@x402/svm';
		import { privateKeyToAccount } from 'viem/accounts';
		const [seller, node, onEVM, onSolana, ...paths] = process.argv.slice(2);
		const signer = await createKeyPairSignerFromBytes(getBase58Encoder().encode(onSolana));
		const paying = wrapFetchWithPayment(fetch, new x402Client()
		  .register('eip155:*', new ExactEvmScheme(privateKeyToAccount(onEVM)))
		  .register('solana:*', new ExactSvmScheme(signer, { rpcUrl: node })));
		for (const path of paths) {
		  const answer = await paying(seller + path);
		  const receipt = decodePaymentResponseHeader(answer.headers.get('payment-response'));
		  console.log(JSON.stringify({ status: answer.status, ...receipt }));
		}
	`, append([]string{seller, node, onEVM, onSolana}, paths...)...)
	decoder := json.NewDecoder(strings.NewReader(said))
	for range paths {
		var got referenceAnswer
		require.NoError(t, decoder.Decode(&got), said)
		list = append(list, got)
	}
	return list
}
