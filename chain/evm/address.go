package evm

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/ethereum/go-ethereum/common"

	"x402-wallet/x402"
)

// errAddress says that a text is not 0x and 40 hex digits, or that its EIP-55 checksum is wrong.
var errAddress = errors.New("not an EVM address")

// parseAddress reads 0x and 40 hex digits. All lower or all upper case carries no checksum; mixed
// case does, and it must be right (EIP-55), because a wrong one is how a mistyped or tampered
// address shows itself.
func parseAddress(text string) (common.Address, error) {
	digits, found := strings.CutPrefix(text, "0x")
	if !found || len(digits) != 2*common.AddressLength || !isHex(digits) {
		return common.Address{}, errAddress
	}
	address := common.HexToAddress(text)
	if digits != strings.ToLower(digits) && digits != strings.ToUpper(digits) && text != address.Hex() {
		return common.Address{}, fmt.Errorf("%w: its mixed case is a wrong EIP-55 checksum", errAddress)
	}
	return address, nil
}

func isHex(digits string) bool {
	return strings.Trim(digits, "0123456789abcdefABCDEF") == ""
}

// ChainID reads the reference of an eip155 CAIP-2 id: a canonical decimal from 1 to 2^63-1.
func ChainID(network string) (uint64, error) {
	id, ok := x402.ChainID(network)
	if !ok {
		return 0, errors.New("not an eip155 network")
	}
	if id > math.MaxInt64 {
		return 0, errors.New("chain id above 2^63-1")
	}
	return id, nil
}

// sameAddress compares two spellings of an address.
func sameAddress(a, b string) bool { return strings.EqualFold(a, b) }

// Address reads an address and gives its EIP-55 spelling; mixed case has to have the right
// checksum.
func Address(text string) (string, error) {
	address, err := parseAddress(text)
	if err != nil {
		return "", err
	}
	return address.Hex(), nil
}
