//go:build !darwin

package app

import (
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/notify"
)

// desktop is how a notice is shown on this system's desktop. On Windows the rules name none.
func desktop() notify.Way { return notify.Bus{Address: environ.SessionBus()} }
