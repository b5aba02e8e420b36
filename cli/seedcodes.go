package cli

import (
	"fmt"

	"x402-wallet/x402"
)

// formerCode is an error code of @ozskr/x402-solana-mcp that has another name here.
type formerCode struct {
	now x402.Code
	why string
}

// formerCodes are what its users look up. The codes that they share with this wallet are not among them.
var formerCodes = map[x402.Code]formerCode{
	"DELEGATION_EXPIRED": {x402.DelegationExhausted, "SPL tokens know no end of a delegation: it lasts " +
		"until it is spent, replaced or revoked; a revoked one is NO_DELEGATION"},
	"NO_ACTIVE_DELEGATION":    {x402.NoDelegation, ""},
	"INSUFFICIENT_DELEGATION": {x402.DelegationExhausted, ""},
	"SIMULATION_FAILED": {x402.CheckFailed, "the node says that the transaction would fail; nothing was " +
		"signed"},
	"INVALID_ADDRESS": {x402.InvalidArgument, ""},
	"INVALID_AMOUNT":  {x402.InvalidArgument, ""},
	"INVALID_DECIMALS": {x402.UntrustedAsset, "a token's decimals come from the registry, never from " +
		"a seller"},
	"KEYPAIR_NOT_FOUND":      {x402.WalletNotFound, ""},
	"DECRYPTION_FAILED":      {x402.InvalidPassphrase, ""},
	"INVALID_PERMISSIONS":    {x402.KeystorePermissions, ""},
	"INVALID_KEYPAIR_FORMAT": {x402.KeystoreCorrupt, "of a file that is imported it is SETUP_FAILED"},
	"BALANCE_CHECK_FAILED":   {x402.CheckFailed, ""},
	"REVOKE_CHECK_FAILED":    {x402.CheckFailed, ""},
}

func (f formerCode) explain(code x402.Code) string {
	text := fmt.Sprintf("%s of @ozskr/x402-solana-mcp is %s here", code, f.now)
	if f.why != "" {
		text += ": " + f.why
	}
	return text + "."
}
