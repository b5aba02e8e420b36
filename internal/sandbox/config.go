package sandbox

import (
	"cmp"
	"fmt"
	"strings"
)

// Rules are the owner's rules in Config. Sums are dollars; "" is the value in brackets.
type Rules struct {
	PerCall      string // ["1.00"]
	Session      string // ["5.00"]; "-" leaves it out, so that the delegation is the cap
	Day          string // ["10.00"]
	Month        string // ["100.00"]
	ApproveAbove string // ["1.00"]
	TokenAccount string // the owner's token account; "": looked up on chain
	Extra        string // more TOML, put at the end
}

// Config is a config.toml for a wallet that lives in this sandbox: its nodes, its facilitator, and
// the ports it may talk to without TLS.
func (s *Sandbox) Config(r Rules) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("[budget]")
	line("per_call = %q", cmp.Or(r.PerCall, "1.00"))
	if r.Session != "-" {
		line("session = %q", cmp.Or(r.Session, "5.00"))
	}
	line("day = %q", cmp.Or(r.Day, "10.00"))
	line("month = %q", cmp.Or(r.Month, "100.00"))
	line("approve_above = %q", cmp.Or(r.ApproveAbove, "1.00"))
	line("[policy]")
	line("loopback = [%s]", strings.Join(s.loopback(), ", "))
	line("prefer = [%q, %q]", EVM, Solana)
	line("[networks.%q]", EVM)
	line("rpc = %q", s.EVMNodeURL)
	line("[networks.%q]", Solana)
	line("rpc = %q", s.SolanaNodeURL)
	if r.TokenAccount != "" {
		line("token_account = %q", r.TokenAccount)
	}
	line("[[facilitators]]")
	line("name = %q", "sandbox")
	line("url = %q", s.FacilitatorURL)
	line("auth = %q", "none")
	b.WriteString(r.Extra)
	return b.String()
}

// Loopback is policy.loopback: the four parties' ports.
func (s *Sandbox) Loopback() (entries []string) {
	for _, url := range []string{s.SellerURL, s.FacilitatorURL, s.EVMNodeURL, s.SolanaNodeURL} {
		entries = append(entries, strings.TrimPrefix(url, "http://"))
	}
	return entries
}

func (s *Sandbox) loopback() (quoted []string) {
	for _, entry := range s.Loopback() {
		quoted = append(quoted, fmt.Sprintf("%q", entry))
	}
	return quoted
}
