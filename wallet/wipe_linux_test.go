package wallet

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"x402-wallet/wallet/internal/keystore/keytest"
)

// wiped is a process that unlocks the golden wallet, signs, locks it, and then looks for the
// secrets in all of its writable memory. It prints how often it finds each, unlocked and locked. It
// never holds what it looks for: the digits are compared as they stand in the constants.
//
// The collector runs when it is told to: one that shrinks a stack at the wrong moment leaves the old
// one behind, which nobody can prevent.
func wiped(ctx context.Context) int {
	debug.SetGCPercent(-1)
	w, err := Open(os.Getenv("WALLET_TEST_DIR"))
	if err == nil {
		err = w.Unlock(ctx, Outside.FromFile(os.Getenv("WALLET_TEST_DIR")+"/passphrase"))
	}
	if err == nil {
		_, err = w.signDigest(ctx, [32]byte{1})
	}
	if err == nil {
		_, err = w.signMessage(ctx, []byte("x"))
	}
	if err == nil {
		_, err = w.Seal(ctx, "x", nil)
	}
	if err != nil {
		return keytest.Report(err)
	}
	before := inMemory()
	w.Lock()
	runtime.GC()
	runtime.GC()
	fmt.Println(before, inMemory())
	runtime.KeepAlive(w)
	return 0
}

// inMemory counts the Solana seed, the secp256k1 scalar as bytes and as the 32-bit words it is
// computed with, the passphrase, and the entropy of the golden phrase, in what this process can write to.
func inMemory() (found [5]int) {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		panic(err)
	}
	defer maps.Close()
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		panic(err)
	}
	defer memory.Close()
	window := make([]byte, 1<<20)
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var from, to uint64
		var mode string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode); n != 3 ||
			!strings.HasPrefix(mode, "rw") {
			continue
		}
		for at := from; at < to; at += uint64(len(window) - 64) {
			n, _ := memory.ReadAt(window[:min(uint64(len(window)), to-at)], int64(at))
			for i := 0; i+32 <= n; i++ {
				count(&found, window[i:i+32])
			}
			clear(window) // or it would find its own window
		}
	}
	return found
}

func count(found *[5]int, b []byte) {
	digit := func(c byte) byte { return byte(strings.IndexByte("0123456789abcdef", c)) }
	is := func(text string, at func(int) int) bool {
		for i := range len(text) / 2 {
			if j := at(i); b[i] != digit(text[2*j])<<4|digit(text[2*j+1]) {
				return false
			}
		}
		return true
	}
	straight := func(i int) int { return i }
	switch {
	case b[0] == 0x9d && is(keytest.SolanaSeed, straight):
		found[0]++
	case b[0] == 0xac && is(keytest.EVMSecret, straight):
		found[1]++
	case b[31] == 0xac && is(keytest.EVMSecret, func(i int) int { return 31 - i }):
		// little-endian words, the lowest first
		found[2]++
	case b[0] == 0xdf && is(keytest.Entropy, straight):
		found[4]++
	case b[0] == ' ' && b[1] == 'p' && b[6] == 'l' && string(b[1:17]) == "pour la tirelire":
		found[3]++
	}
}
