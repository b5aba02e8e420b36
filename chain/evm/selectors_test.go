package evm

import (
	"testing"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"
)

// The ABI of EIP-20, EIP-3009, Permit2 and the proxies.
func TestSelectors(t *testing.T) {
	keccak := func(s string) string { return hexOf(crypto.Keccak256([]byte(s))) }
	require.Equal(t, keccak("balanceOf(address)")[:10], hexOf(selectBalanceOf))
	require.Equal(t, keccak("authorizationState(address,bytes32)")[:10], hexOf(selectAuthorizationState))
	require.Equal(t, keccak("state()")[:10], hexOf(selectState))
	require.Equal(t, keccak("AuthorizationUsed(address,bytes32)"), topicUsed.Hex())
	require.Equal(t, keccak("AuthorizationCanceled(address,bytes32)"), topicCanceled.Hex())
	require.Equal(t, keccak("Transfer(address,address,uint256)"), topicTransfer.Hex())

	const permit, approval = "((address,uint256),uint256,uint256)", "(uint256,uint256,bytes32,bytes32,uint8)"
	require.Equal(t, keccak("allowance(address,address)")[:10], hexOf(selectAllowance))
	require.Equal(t, keccak("nonces(address)")[:10], hexOf(selectNonces))
	require.Equal(t, keccak("nonceBitmap(address,uint256)")[:10], hexOf(selectNonceBitmap))
	require.Equal(t, keccak("UnorderedNonceInvalidation(address,uint256,uint256)"), topicInvalidated.Hex())
	for i, call := range []string{"settle(" + permit + ",address,(address,uint256),bytes)",
		"settleWithPermit(" + approval + "," + permit + ",address,(address,uint256),bytes)",
		"settle(" + permit + ",uint256,address,(address,address,uint256),bytes)",
		"settleWithPermit(" + approval + "," + permit + ",uint256,address,(address,address,uint256),bytes)"} {
		require.Equal(t, keccak(call)[:10], hexOf(settleCalls[i].selector()))
	}
}
