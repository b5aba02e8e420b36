//go:build !unix

package unlock

import "x402-wallet/internal/ownfile"

var checkCredential = ownfile.CheckOwner
