package budget

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// Who may be paid where the owner lists payees; new_payee has nothing to say of those on the list.
func TestPayees(t *testing.T) {
	const (
		base, sepolia, devnet = "eip155:8453", "eip155:84532", x402.SolanaDevnet
		evm                   = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
		folded                = "0x209693bc6afc0c5328ba36faf03c514ef312287c"
		svm                   = "2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4"
		did                   = "did:rooch:rooch1nrh26kpelln62u998d94tr0t6ly9xtksn2dch8mx2alttf506jpsc8q5yy"
	)
	for name, c := range map[string]struct {
		list           []string
		network, payTo string
		passes         bool
	}{
		"no list":            {nil, base, evm, true},
		"on it":              {[]string{folded}, base, evm, true},
		"on any network":     {[]string{folded}, sepolia, evm, true},
		"on this network":    {[]string{base + ":" + folded}, base, evm, true},
		"on another network": {[]string{base + ":" + folded}, sepolia, evm, false},
		"of another": {[]string{base + ":0x0000000000000000000000000000000000000001", svm}, base,
			evm, false},
		"of Solana":          {[]string{folded, svm}, devnet, svm, true},
		"of Solana, network": {[]string{devnet + ":" + svm}, devnet, svm, true},
		"Solana in other case": {[]string{svm}, devnet, "2WKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4",
			false},
		"a service":                     {[]string{did}, "rooch:main", did, true},
		"nobody":                        {[]string{folded}, base, "", false},
		"with its network in the payee": {[]string{folded}, base, base + ":" + evm, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, rule := range []Rule{RuleAllow, RuleAsk, RuleRefuse} {
				r := rules(t)
				r.Payees, r.NewPayee = c.list, rule
				a := ask(t, "0.01")
				a.Payee = Payee{Network: c.network, PayTo: c.payTo}
				d, err := r.Decide(a, Facts{})
				switch {
				case len(c.list) == 0 && rule != RuleAllow:
					require.Error(t, err, "new_payee stands without a list")
				case c.passes:
					require.NoError(t, err, rule)
					require.Equal(t, len(c.list) == 0 && rule == RuleRefuse, d.PayeeKnown)
				default:
					require.True(t, x402.HasCode(err, x402.PolicyDenied), "%v", err)
					require.Equal(t, c.list, x402.AsError(err).Details["payees"])
					require.Contains(t, err.Error(), "payees that the owner allows")
				}
			}
		})
	}
	r := rules(t)
	r.Payees, r.SignIn = []string{evm}, RuleAllow
	_, err := r.Decide(Ask{Host: "api.example", SignIn: true}, Facts{})
	require.NoError(t, err, "a sign-in pays nobody")
}
