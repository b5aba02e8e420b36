package cli

import (
	"os/exec"
	"strings"
	"testing"
	"os"
)

func TestFleetTrial(t *testing.T) {
	f := newFleet(t, "0.04", "rate = 1000")
	a := f.joins("research-1", "research")
	program, _ := exec.LookPath("x402-wallet")
	run := func(env []string, args ...string) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "NO_COLOR=1", programVariable + "=" + os.Getenv(programVariable)}, env...)
		out, err := cmd.CombinedOutput()
		t.Logf("$ x402-wallet %s\n%s%v", strings.Join(args, " "), out, err)
	}
	run(a, "pay", "--max", "0.05", f.w.SellerURL+"/weather")
	for _, args := range []string{"doctor", "policy", "agents", "freeze"} {
		run(a, strings.Fields(args)...)
	}
	f.owner("unfreeze")
	run(a, "pay", "--max", "0.05", f.w.SellerURL+"/weather")
	for _, args := range []string{"history", "budget", "doctor", "policy", "policy seal", "history verify", "export --format csv"} {
		run(f.env, strings.Fields(args)...)
	}
}
