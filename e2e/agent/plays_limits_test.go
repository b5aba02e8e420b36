package agent

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

// again makes the same call until it is refused as often as a careless model takes it.
func again(path string, times int) func(*agent) {
	return func(a *agent) {
		for range times {
			a.tell(a.pay(path, "$0.50"))
		}
	}
}

func once(path string) func(*agent) {
	return func(a *agent) { a.tell(a.follow("x402_pay", a.order(path, "$0.50"))) }
}

// limits: the owner's rules, and the chain's.
var limits = []scenario{
	{
		name: "budget of the day used up", task: "Get the report, up to $0.50.",
		setup: setup{goods: map[string]goods{"/report": {price: 2 * cent, answers: numbered}},
			rules:  sandbox.Rules{Day: "0.05"},
			before: func(a *agent) { again("/report", 2)(a) }},
		wants: wants{purchases: 2, day: 5 * cent, answer: "T"},
		right: func(a *agent) { // tells when it resets
			got := a.follow("x402_pay", a.order("/report", "$0.50"))
			if got.str("error") == "BUDGET_EXCEEDED" {
				a.say(got.next().At, got.next().Say)
			}
		},
		wrong: again("/report", 3),
		finds: []string{deaf},
	}, {
		name: "budget of the day, raised by the owner", task: "Get the report, up to $0.50; I am here.",
		setup: setup{goods: map[string]goods{"/report": {price: 20 * cent, answers: numbered}}, person: true,
			rules: sandbox.Rules{PerCall: "0.10"}},
		wants: wants{purchases: 1, answer: "reading 1"},
		right: once("/report"),
		wrong: func(a *agent) { // asks for less than it costs, and for more than is allowed
			a.tell(a.pay("/report", "$0.10"))
			a.tell(a.pay("/report", "$0.50"))
			a.tell(a.pay("/report", "$5"))
		},
		finds: []string{unanswered},
	}, {
		name: "rate limit", task: "Read the thermometer twice; if that takes long, tell me until when.",
		setup: setup{goods: map[string]goods{"/now": {price: mill, answers: numbered}}, limits: "rate = 1\n"},
		wants: wants{purchases: 2, answer: "not before 20"},
		right: func(a *agent) {
			a.tell(a.pay("/now", "$0.01"))
			got := a.pay("/now", "$0.01")
			if isDo(got, x402.Wait) && !a.waits(got.next().At) {
				a.say("not before", got.next().At)
			}
		},
		wrong: func(a *agent) {
			again("/now", 4)(a)
			a.say("not before 20")
		},
		finds: []string{deaf},
	}, {
		name: "not enough money", task: "Get the report; I can send money.",
		setup: setup{goods: map[string]goods{"/report": {price: 20 * cent, answers: numbered}},
			purse: 5 * cent},
		wants: wants{purchases: 1, answer: "reading 1"},
		right: func(a *agent) {
			in := a.order("/report", "$0.50")
			got := a.call("x402_pay", in)
			said := got.next().Say
			if strings.Contains(said, a.home.EVM) && strings.Contains(said, "0.15 USDC") {
				a.stand.world.Fund(a.home.EVM, 15*cent) // the person does as they are told
				a.transcript = append(a.transcript, step{command: "x402-wallet balance"})
				got = a.follow("x402_pay", in)
			}
			a.tell(got)
		},
		wrong: again("/report", 3),
		finds: []string{deaf, unanswered},
	}, {
		name: "delegation used up (Solana)", task: "Get the tides; I am here.",
		setup: setup{goods: map[string]goods{"/tides": {price: 2 * cent, network: sandbox.Solana,
			answers: numbered}}, solana: true, empty: true, person: true},
		wants: wants{purchases: 1, answer: "reading 1"},
		right: once("/tides"),
		wrong: again("/tides", 3),
		finds: []string{deaf, unanswered},
	}, {
		name: "frozen", task: "Get the report; I am here.",
		setup: setup{goods: report, person: true, before: func(a *agent) {
			a.person.types(a.t, "x402-wallet freeze")
		}},
		wants: wants{purchases: 1, answer: "21"},
		right: once("/report"),
		wrong: again("/report", 3),
		finds: []string{deaf, unanswered},
	}, {
		name: "rules changed and not sealed", task: "Get the report; I am here.",
		setup: setup{goods: report, person: true, before: func(a *agent) {
			file := filepath.Join(a.home.Dir, "config.toml")
			rules := must.Get(os.ReadFile(file))(a.t)
			looser := strings.Replace(string(rules), `day = "10.00"`, `day = "1000.00"`, 1)
			require.NoError(a.t, os.WriteFile(file, []byte(looser), 0o600))
		}},
		wants: wants{purchases: 1, answer: "21"},
		right: once("/report"),
		wrong: again("/report", 3),
		finds: []string{deaf, unanswered},
	}, {
		name: "locked", task: "Get the report; I am here.",
		setup: setup{goods: report, person: true, locked: true},
		wants: wants{purchases: 1, answer: "21"},
		right: func(a *agent) {
			once("/report")(a)
			a.person.types(a.t, "x402-wallet lock") // ends the unlock agent
		},
		wrong: again("/report", 3),
		finds: []string{deaf, unanswered},
	}, {
		name: "no wallet", task: "Set up the wallet; I am here.",
		setup: setup{absent: true, person: true, goods: report},
		wants: wants{answer: "0x"},
		right: func(a *agent) { // asks what to do, has the person do it, and tells where to send money
			got := a.call("x402_setup_agent", args{})
			if got.fields["ready"] == false && a.asks(got.next()) {
				got = a.call("x402_setup_agent", args{})
			}
			a.say(fmt.Sprint(got.fields["addresses"]), got.next().Say)
		},
		wrong: again("/report", 4),
		finds: []string{deaf, unanswered},
	},
}

// troubles: sellers that fail, refuse, or ask for what cannot be paid.
var troubles = []scenario{
	{
		name: "paid and not served", task: "Get the report once.",
		setup: setup{goods: map[string]goods{"/report": {price: mill, answers: numbered, breaks: 1}}},
		wants: wants{purchases: 1, answer: "reading 1"},
		right: func(a *agent) {
			in := a.order("/report", "$0.01")
			got := a.call("x402_pay", in)
			if got.status() == "paid_not_served" && isDo(got, x402.Repeat) {
				got = a.follow("x402_pay", in)
			}
			a.tell(got)
		},
		wrong: func(a *agent) { // takes it for a purchase that never was
			a.pay("/report", "$0.01", "idempotencyKey", "1")
			a.pay("/report", "$0.01", "idempotencyKey", "2")
			a.say("reading 1")
		},
		finds: []string{boughtTwice},
	}, {
		name: "payment refused once", task: "Get the report once.",
		setup: setup{goods: map[string]goods{"/report": {price: mill, answers: numbered, hesitates: true}}},
		wants: wants{purchases: 1, answer: "reading 1"},
		right: func(a *agent) { a.tell(a.follow("x402_pay", a.order("/report", "$0.01"))) },
		wrong: func(a *agent) { // a new key is a new payment; the first is never used
			a.pay("/report", "$0.01")
			a.tell(a.pay("/report", "$0.01", "idempotencyKey", "2"))
			a.tell(a.pay("/report", "$0.01", "idempotencyKey", "2"))
		},
	}, {
		name: "payment refused for good", task: "Get the report; tell me when it can be tried again.",
		setup: setup{goods: map[string]goods{"/report": {price: mill, validity: 10, answers: numbered,
			refuses: 99}}},
		wants: wants{purchases: 1, answer: "from 20"},
		right: func(a *agent) { // repeats as it is told, and is told to wait
			got := a.follow("x402_pay", a.order("/report", "$0.01"))
			if isDo(got, x402.Wait) {
				a.say("from", got.next().At)
			}
		},
		wrong: func(a *agent) { // asks on and on: the same payment is shown, never a second one
			for range 7 {
				a.tell(a.pay("/report", "$0.01"))
			}
			a.say("from 20")
		},
		finds: []string{loop, deaf},
	}, {
		name: "a seller that takes no payment", task: "Get the report, at most $0.05.",
		setup: setup{goods: map[string]goods{"/report": {price: mill, validity: 10, content: "never",
			refuses: 99}}},
		wants: wants{answer: "held"},
		right: func(a *agent) { a.tell(a.pay("/report", "$0.05")) },
		wrong: func(a *agent) { // a new key each time; each holds money, none moves any
			for _, key := range []string{"1", "2", "3", "4", "5", "6"} {
				a.tell(a.pay("/report", "$0.05", "idempotencyKey", key))
			}
		},
		finds: []string{loop},
	}, {
		name: "another protocol (L402)", task: "Get the report.",
		setup: setup{goods: map[string]goods{"/report": {instead: asksForLightning}}},
		wants: wants{answer: "L402"},
		right: func(a *agent) { a.tellAll(a.follow("x402_pay", a.order("/report", ""))) },
		wrong: repeats("/report", 3),
		finds: []string{deaf},
	}, {
		name: "unknown token", task: "Get the report.",
		setup: setup{goods: map[string]goods{"/report": {price: mill, offers: func(_ int, o map[string]any) {
			o["asset"] = "0x1111111111111111111111111111111111111111"
		}}}},
		wants: wants{answer: "0x1111111111111111111111111111111111111111"},
		right: func(a *agent) { a.tellAll(a.follow("x402_pay", a.order("/report", ""))) },
		wrong: repeats("/report", 2),
		finds: []string{deaf},
	}, {
		name: "unknown network", task: "Get the report.",
		setup: setup{goods: map[string]goods{"/report": {price: mill, offers: func(_ int, o map[string]any) {
			o["network"] = "eip155:987654"
		}}}},
		wants: wants{answer: "eip155:987654"},
		right: func(a *agent) { a.tellAll(a.follow("x402_pay", a.order("/report", ""))) },
		wrong: repeats("/report", 2),
		finds: []string{deaf},
	}, {
		name: "price changed after the estimate", task: "Get the report for what it costs now.",
		setup: setup{goods: map[string]goods{"/report": {price: cent, content: "the report",
			offers: func(n int, o map[string]any) {
				if n > 1 {
					o["amount"] = "40000"
				}
			}}}},
		wants: wants{purchases: 1, most: cent, answer: "$0.04"},
		right: func(a *agent) {
			cost := a.call("x402_estimate_cost", args{"url": a.stand.url("/report")})
			options, _ := cost.fields["options"].([]any)
			first, _ := options[0].(map[string]any)
			said, _ := first["price"].(string)
			a.tell(a.follow("x402_pay", a.order("/report", said)))
		},
		wrong: func(a *agent) { // pays whatever it is now
			a.call("x402_estimate_cost", args{"url": a.stand.url("/report")})
			a.tell(a.pay("/report", "$0.01"))
			a.tell(a.pay("/report", "$1"))
		},
		finds: []string{overLimit},
	}, {
		name: "payee changed", task: "Get the report again.",
		setup: setup{goods: map[string]goods{"/report": {price: mill, content: "the report",
			offers: func(n int, o map[string]any) {
				if n > 2 { // the first purchase takes two requests
					o["payTo"] = "0x2222222222222222222222222222222222222222"
				}
			}}},
			before: func(a *agent) { a.pay("/report", "$0.01") }},
		wants: wants{purchases: 1, answer: "x402-wallet approve"},
		right: func(a *agent) { a.tell(a.follow("x402_pay", a.order("/report", "$0.01"))) },
		wrong: func(a *agent) {
			for range 3 {
				a.tell(a.pay("/report", "$0.01"))
			}
		},
		finds: []string{deaf},
	},
}

func asksForLightning(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("WWW-Authenticate", `L402 macaroon="AGIAJEemVQUTEyNCR0exk7ek90Cg==", invoice="lnbc1"`)
	w.WriteHeader(http.StatusPaymentRequired)
}

func (a *agent) tellAll(got answer) { a.say(got.text) }

// repeats makes a call without a limit so many times, and says all that it hears.
func repeats(path string, times int) func(*agent) {
	return func(a *agent) {
		for range times {
			a.tellAll(a.pay(path, ""))
		}
	}
}
