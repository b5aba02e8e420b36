package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
	"x402-wallet/x402/explain"
)

// Each error code of @ozskr/x402-solana-mcp is explained: by its own name, or by the one that stands for it.
func TestCodesOfTheSeedAreExplained(t *testing.T) {
	for code, now := range map[string]x402.Code{
		"DELEGATION_EXPIRED": x402.DelegationExhausted, "delegation_expired": x402.DelegationExhausted,
		"INSUFFICIENT_DELEGATION": x402.DelegationExhausted, "NO_ACTIVE_DELEGATION": x402.NoDelegation,
		"SIMULATION_FAILED": x402.CheckFailed, "INVALID_ADDRESS": x402.InvalidArgument,
		"INVALID_AMOUNT": x402.InvalidArgument, "INVALID_DECIMALS": x402.UntrustedAsset,
		"KEYPAIR_NOT_FOUND": x402.WalletNotFound, "DECRYPTION_FAILED": x402.InvalidPassphrase,
		"INVALID_PERMISSIONS": x402.KeystorePermissions, "INVALID_KEYPAIR_FORMAT": x402.KeystoreCorrupt,
		"BALANCE_CHECK_FAILED": x402.CheckFailed, "REVOKE_CHECK_FAILED": x402.CheckFailed,
		"RPC_ERROR": x402.RPCError, "BUDGET_EXCEEDED": x402.BudgetExceeded,
		"KEYPAIR_EXISTS": x402.KeypairExists, "SETUP_FAILED": x402.SetupFailed,
		"CHECK_FAILED": x402.CheckFailed, "PAY_FAILED": x402.PayFailed,
	} {
		var out bytes.Buffer
		root := (&Program{}).root(&ui{out: &output{w: os.Stdout}})
		root.SetOut(&out)
		root.SetArgs([]string{"help", code})
		require.NoError(t, root.Execute(), code)
		means, do, known := explain.Code(now)
		require.True(t, known, now)
		assert.Contains(t, out.String(), string(now)+": "+means)
		assert.Contains(t, out.String(), do)
		isFormer := !strings.EqualFold(code, string(now))
		assert.Equal(t, isFormer, strings.Contains(out.String(), strings.ToUpper(code)+" of @ozskr"), code)
	}
	for code := range formerCodes {
		_, _, known := explain.Code(code)
		assert.False(t, known, "%s is a code of this wallet", code)
	}
}
