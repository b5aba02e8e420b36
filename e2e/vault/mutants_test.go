package vault

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

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
