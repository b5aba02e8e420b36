package x402

import (
	"fmt"
	"strings"
)

// Clip bounds a text in bytes, and does not cut a character in two.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Brief bounds a stranger's text for the details of an error. No address, DID (74 letters),
// transaction (88 on Solana) or CAIP-2 id needs more.
func Brief(s string) string { return Clip(s, 88) }

// Quote makes a stranger's words safe to stand in our own: short, printable ASCII, in quotes.
func Quote(s string) string { return fmt.Sprintf("%+q", Clip(s, 200)) }
