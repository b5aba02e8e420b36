package pgtest

import "os"

// Windows has no such signal; os refuses this one there, and so Kill fails.
var pause = os.Interrupt
