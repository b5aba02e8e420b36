//go:build !unix

package app

import (
	"context"

	"x402-wallet/internal/config/environ"
)

// takeHanded does nothing here: no service runs commands of owners.
func takeHanded(parent context.Context, _ environ.Env) context.Context { return parent }
