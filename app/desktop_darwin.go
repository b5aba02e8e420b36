package app

import (
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/notify"
)

// desktop is how a notice is shown on a Mac's desktop.
func desktop() notify.Way {
	return notify.Script{Program: "/usr/bin/osascript", Env: environ.Desktop()}
}
