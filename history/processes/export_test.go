package processes

import (
	"os"

	"x402-wallet/history"
)

// SetLock replaces how a process of Files takes a lock.
func SetLock(p history.Process, lock func(*os.File) (held bool, err error)) { p.(*files).lock = lock }
