//go:build !linux

package child

import "os/exec"

// Unsupported says why nothing can be confined on this system; "": it can.
func Unsupported() string { return "only Linux confines programs (Landlock)" }

// Gaps says what a confined program still can do on this system that newer ones stop.
func Gaps() []string { return nil }

func whyNotConfinable(string, []string) string { return "" }

func confine(*exec.Cmd, []string) {}

// ExecConfined does nothing here.
func ExecConfined([]string, []string) (launched bool) { return false }
