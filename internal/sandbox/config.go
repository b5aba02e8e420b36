package sandbox

import (
	"cmp"
	"fmt"
	"strings"

	"x402-wallet/x402"
)

// Rules are the owner's rules in Config. Sums are dollars; "" is the value in brackets.
type Rules struct {
	PerCall      string // ["1.00"]
	Session      string // ["5.00"]; "-" leaves it out, so that the delegation is the cap
	Day          string // ["10.00"]
	Month        string // ["100.00"]
	ApproveAbove string // ["1.00"]
	TokenAccount string // the owner's token account; if empty it is looked up on chain
	SignIn       string // policy.sign_in [left out]
	OnEVM        string // more TOML in the table of the EVM network
	Extra        string // more TOML, put at the end
}

// Config is a config.toml for a wallet that lives in this sandbox: its nodes, its facilitator, and
// the ports it may talk to without TLS.
func (s *Sandbox) Config(r Rules) string {
	session, tokenAccount := fmt.Sprintf("session = %q\n", cmp.Or(r.Session, "5.00")), ""
	if r.Session == "-" {
		session = ""
	}
	signIn := ""
	if r.SignIn != "" {
		signIn = fmt.Sprintf("sign_in = %q\n", r.SignIn)
	}
	if r.TokenAccount != "" {
		tokenAccount = fmt.Sprintf("token_account = %q\n", r.TokenAccount)
	}
	evm, solana := s.Networks()
	return fmt.Sprintf(`[budget]
per_call = %q
%sday = %q
month = %q
approve_above = %q
[policy]
loopback = ["%s"]
prefer = [%q, %q]
%s[networks.%q]
rpc = %q
%s[networks.%q]
rpc = %q
%s[networks.%q]
rpc = %q
[[facilitators]]
name = "sandbox"
url = %q
auth = "none"
%s`, cmp.Or(r.PerCall, "1.00"), session, cmp.Or(r.Day, "10.00"), cmp.Or(r.Month, "100.00"),
		cmp.Or(r.ApproveAbove, "1.00"), strings.Join(s.Loopback, `", "`), evm, solana,
		signIn, evm, s.EVMNodeURL, r.OnEVM, solana, s.SolanaNodeURL, tokenAccount,
		x402.TempoTestnet, s.TempoNodeURL(), s.FacilitatorURL, r.Extra)
}
