package vault

import (
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

var (
	ownerAddress = common.HexToAddress("0x00000000000000000000000000000000000a11ce")
	agentAddress = common.HexToAddress("0x0000000000000000000000000000000000000b0b")
)

func plainRule() Rule {
	return Rule{Agent: agentAddress, PerPeriod: big.NewInt(100_000), Period: big.NewInt(3600),
		PerPayment: big.NewInt(60_000), MaxWindow: big.NewInt(600)}
}

// TestTheBuildIsTheSources: the code that the wallet deploys is what anybody gets who compiles the
// source.
func TestTheBuildIsTheSources(t *testing.T) {
	committed := must.Get(os.ReadFile(filepath.Join(root, Committed)))(t)
	compiled, err := exec.Command("node", filepath.Join(lab, "contracts/compile.mjs"), "vault").Output()
	require.NoError(t, err)
	require.True(t, string(committed) == string(compiled),
		"not what the source compiles to: node e2e/lab/contracts/compile.mjs vault >%s", Committed)
}

// TestTheCodeOnTheChain is the committed one, with its owner and token filled in.
func TestTheCodeOnTheChain(t *testing.T) {
	chain, build := Start(t, lab), committedBuild(t)
	vault := deploy(t, chain, build, plainRule())
	want := build.Runtime
	for name, value := range map[string]common.Address{"owner": ownerAddress, "token": chain.Token} {
		require.NotEmpty(t, build.Immutables[name])
		for _, at := range build.Immutables[name] {
			copy(want[at:], Words(value))
		}
	}
	require.Len(t, build.Immutables, 2)
	var code hexutil.Bytes
	require.NoError(t, chain.Ask(&code, "eth_getCode", vault, "latest"))
	require.Equal(t, want, code)

	for method, word := range map[string]any{
		"owner()": ownerAddress, "token()": chain.Token, "agent()": agentAddress, "perPeriod()": 100_000,
		"period()": 3600, "perPayment()": 60_000, "maxWindow()": 600,
		"base()": 0, "floor()": 0, "available()": 0,
	} {
		answer := must.Get(chain.View(vault, method))(t)
		require.Equal(t, Words(word), answer, method)
		require.Contains(t, build.Methods, method)
	}
}

func TestWhatAVaultIsNotMadeOf(t *testing.T) {
	chain, build := Start(t, lab), committedBuild(t)
	nobody := common.Address{}
	for reason, change := range map[string]func(owner, token *common.Address, r *Rule){
		"":                          func(_, _ *common.Address, _ *Rule) {},
		"owner is the zero address": func(owner, _ *common.Address, _ *Rule) { *owner = nobody },
		"agent is the zero address": func(_, _ *common.Address, r *Rule) { r.Agent = nobody },
		"period is zero":            func(_, _ *common.Address, r *Rule) { r.Period = new(big.Int) },
		"no token":                  func(_, token *common.Address, _ *Rule) { *token = agentAddress },
	} {
		owner, token, rule := ownerAddress, chain.Token, plainRule()
		change(&owner, &token, &rule)
		create, vault := build.Create(agentAddress, owner, token, rule)
		require.Equal(t, reason == "", must.Get(chain.Send(create))(t).Status == 1, reason)
		var code hexutil.Bytes
		require.NoError(t, chain.Ask(&code, "eth_getCode", vault, "latest"))
		require.Equal(t, reason == "", len(code) > 0, reason)
	}
}

// TestEvents: what the owner does is told in the vault's events, and nobody else is let.
func TestEvents(t *testing.T) {
	chain, build := Start(t, lab), committedBuild(t)
	vault := deploy(t, chain, build, plainRule())
	send := func(from, to common.Address, data []byte) []Log {
		t.Helper()
		receipt := must.Get(chain.Send(Call{From: from, To: &to, Data: data}))(t)
		var logs []Log
		for _, log := range receipt.Logs {
			if log.Address == vault {
				logs = append(logs, log)
			}
		}
		return logs
	}
	send(ownerAddress, chain.Token, Data("mint(address,uint256)", ownerAddress, 500))
	send(ownerAddress, chain.Token, Data("approve(address,uint256)", vault, 500))
	agent := common.Hash(Words(agentAddress))
	for _, c := range []struct {
		data   []byte
		event  string
		topics []common.Hash
		words  []byte
	}{
		{Data("deposit(uint256)", 500), "Deposited(uint256)", nil, Words(500)},
		{plainRule().Allow(), "Allowed(address,uint256,uint256,uint256,uint256,uint256)",
			[]common.Hash{agent}, Words(100_000, 3600, 60_000, 600, 500)},
		{Data("revoke()"), "Revoked(address)", []common.Hash{agent}, nil},
		{Data("withdraw(uint256)", 500), "Withdrawn(uint256)", nil, Words(500)},
	} {
		for _, stranger := range []common.Address{agentAddress, vault, chain.Token} {
			require.Empty(t, send(stranger, vault, c.data), c.event)
		}
		topics := append([]common.Hash{crypto.Keccak256Hash([]byte(c.event))}, c.topics...)
		logs := send(ownerAddress, vault, c.data)
		require.Len(t, logs, 1, c.event)
		require.Equal(t, topics, logs[0].Topics, c.event)
		require.Equal(t, string(c.words), string(logs[0].Data), c.event)
	}
}

// TestATokenThatSaysNo: a token may answer false where others end in an error.
func TestATokenThatSaysNo(t *testing.T) {
	chain, build := Start(t, lab), committedBuild(t)
	no := common.Address{0x0f}
	require.NoError(t, chain.Ask(nil, "anvil_setCode", no, "0x60206000f3")) // a word of zeros to every call
	create, vault := build.Create(agentAddress, ownerAddress, no, plainRule())
	require.EqualValues(t, 1, must.Get(chain.Send(create))(t).Status)
	for _, method := range []string{"deposit(uint256)", "withdraw(uint256)"} {
		receipt := must.Get(chain.Send(Call{From: ownerAddress, To: &vault, Data: Data(method, 1)}))(t)
		require.Zero(t, receipt.Status, method)
	}
}

// TestSettingsAreCommitted: a compiler's default that changes changes no code.
func TestSettingsAreCommitted(t *testing.T) {
	build := committedBuild(t)
	require.True(t, strings.HasPrefix(build.Compiler, "0.8.28+commit."), build.Compiler)
	require.Equal(t, "paris", build.Settings.EvmVersion)
	require.Equal(t, "none", build.Settings.Metadata.BytecodeHash)
}

func committedBuild(t *testing.T) Build { return must.Get(ReadBuild(root))(t) }

func deploy(t *testing.T, chain *Chain, build Build, rule Rule) common.Address {
	t.Helper()
	create, vault := build.Create(agentAddress, ownerAddress, chain.Token, rule)
	require.EqualValues(t, 1, must.Get(chain.Send(create))(t).Status)
	return vault
}

// mutants are faults in the contract, one at a time: text of its source, and what stands there instead.
var mutants = []struct{ name, from, to string }{
	{"one unit below the floor", "cheque.value <= balance && balance - cheque.value >= floor()",
		"cheque.value <= balance && balance - cheque.value + 1 >= floor()"},
	{"the last unit is kept back", "balance - cheque.value >= floor()", "balance - cheque.value > floor()"},
	{"no limit of a payment", "if (cheque.value > perPayment) return false;", ""},
	{"a payment must be below its limit", "cheque.value > perPayment", "cheque.value >= perPayment"},
	{"no maxWindow", "above(block.timestamp, cheque.validBefore) > maxWindow", "false"},
	{"maxWindow itself is too long", "above(block.timestamp, cheque.validBefore) > maxWindow",
		"above(block.timestamp, cheque.validBefore) >= maxWindow"},
	{"a deposit is the agent's", "base += value;", ""},
	{"a withdrawal leaves the base", "base = base > value ? base - value : 0;", ""},
	{"nobody is an agent", `require(agent_ != address(0), "AgentVault: agent is the zero address");`, ""},
	{"a period of no length", `require(period_ != 0, "AgentVault: period is zero");`, ""},
	{"revoke does nothing", "agent = address(0);\n", ""},
	{"revoked, the floor is as ever", "if (agent == address(0)) return type(uint256).max;", ""},
	{"anybody is the owner", `require(msg.sender == owner, "AgentVault: caller is not the owner");`, ""},
	{"allow goes on with the old beginning", "start = uint64(block.timestamp);",
		"if (start == 0) start = uint64(block.timestamp);"},
	{"more than there is ends in an error", "cheque.value <= balance && ", ""},
	{"a period without end overflows",
		"period > type(uint256).max - present ? type(uint256).max : present + period", "present + period"},
	{"allow goes on with the old base", "base = token.balanceOf(address(this));",
		"if (base == 0) base = token.balanceOf(address(this));"},
	{"the first period begins after one", "elapsedPeriods() + 1;", "elapsedPeriods();"},
	{"an allowance without end overflows", "perPeriod > base / periods ? 0 : base - perPeriod * periods",
		"base > perPeriod * periods ? base - perPeriod * periods : 0"},
	{"whatever the digest", "&& digestOf(cheque) == digest", ""},
	{"whoever signs", "return signer != address(0) && signer == agent;", "return signer != address(0);"},
	{"another payer's", "address(this),\n                cheque.to", "agent,\n                cheque.to"},
	{"the twin of a signature", "uint256(cheque.s) > HALF_ORDER || ", ""},
	{"any offset", "cheque.offset == BYTES_OFFSET && ", ""},
	{"any length", "cheque.length == SIGNATURE_LENGTH && ", ""},
	{"any payee", "cheque.to <= type(uint160).max\n            && ", ""},
	{"any padding", "&& cheque.v << 8 == 0", ""},
	{"more bytes than a cheque", "signature.length != CHEQUE_LENGTH", "signature.length < CHEQUE_LENGTH"},
	{"short signatures are read", "if (signature.length != CHEQUE_LENGTH) return INVALID;", ""},
	{"a period early", "(block.timestamp - start) / period;", "(block.timestamp - start + 1) / period;"},
}

// TestMutants: each fault is noticed by one of the proofs, else they would prove nothing.
func TestMutants(t *testing.T) {
	source := must.Get(os.ReadFile(filepath.Join(root, "chain/evm/vault/AgentVault.sol")))(t)
	sources := make([]string, len(mutants))
	for i, m := range mutants {
		require.Equal(t, 1, strings.Count(string(source), m.from), "%s: the source has moved on", m.name)
		sources[i] = strings.Replace(string(source), m.from, m.to, 1)
	}
	builds := must.Get(CompileAll(lab, sources))(t)
	chain := Start(t, lab)
	for i, m := range mutants {
		_, err := signatures(chain, builds[i], 1, 0)
		if err == nil {
			_, _, err = simulated(chain, builds[i], 1, 30)
		}
		require.Error(t, err, "survived: %s", m.name)
		t.Logf("%s: %.90s…", m.name, strings.ReplaceAll(err.Error(), "\n", " "))
	}
}
