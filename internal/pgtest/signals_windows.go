package pgtest

import "os"

// Windows has no such signals; Go's os refuses any but Kill there, so what needs them fails.
var pause, resume = os.Interrupt, os.Interrupt
