package sameuser

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"x402-wallet/e2e/testworld"
)

// watch is a program of the same user that waits for processes with this argument, tries to look
// into each from its first moment on, and prints what it saw when its input ends. What it looks for
// besides is secret.
func watch(argument, secret string) {
	runtime.LockOSThread() // a tracer is a thread
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	saw := map[string]bool{}
	before := map[string]bool{}
	for _, pid := range testworld.Processes() {
		before[pid] = true
	}
	fmt.Println("watching")
	for {
		select {
		case <-over:
			for _, what := range slices.Sorted(maps.Keys(saw)) {
				fmt.Println(what)
			}
			fmt.Println("watched")
			return
		default:
		}
		for _, pid := range testworld.Processes() {
			if before[pid] {
				continue
			}
			text, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
			if strings.Contains(string(text), argument) {
				saw["a process"] = true
				testworld.Look(pid, secret, saw)
			}
		}
	}
}
