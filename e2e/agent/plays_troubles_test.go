package agent

import (
	"net/http"

	"x402-wallet/x402"
)

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
		wrong: func(a *agent) {
			for range 3 {
				a.tellAll(a.pay("/report", ""))
			}
		},
		finds: []string{deaf},
	}, {
		name: "unknown token", task: "Get the report.",
		setup: setup{goods: map[string]goods{"/report": {price: mill, offers: func(_ int, o map[string]any) {
			o["asset"] = "0x1111111111111111111111111111111111111111"
		}}}},
		wants: wants{answer: "0x1111111111111111111111111111111111111111"},
		right: func(a *agent) { a.tellAll(a.follow("x402_pay", a.order("/report", ""))) },
		wrong: func(a *agent) {
			for range 2 {
				a.tellAll(a.pay("/report", ""))
			}
		},
		finds: []string{deaf},
	}, {
		name: "unknown network", task: "Get the report.",
		setup: setup{goods: map[string]goods{"/report": {price: mill, offers: func(_ int, o map[string]any) {
			o["network"] = "eip155:987654"
		}}}},
		wants: wants{answer: "eip155:987654"},
		right: func(a *agent) { a.tellAll(a.follow("x402_pay", a.order("/report", ""))) },
		wrong: func(a *agent) {
			for range 2 {
				a.tellAll(a.pay("/report", ""))
			}
		},
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
