package agent

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"x402-wallet/x402"
)

func numbered(n int) string { return fmt.Sprint("reading ", n, " of the thermometer") }

var report = map[string]goods{"/report": {price: mill, content: `{"city":"Lisbon","celsius":21}`}}

var buying = []scenario{
	{
		name: "plain purchase", task: "Get the weather report once, at most $0.05.",
		setup: setup{goods: report},
		wants: wants{purchases: 1, most: 5 * cent, answer: `"celsius":21`},
		right: func(a *agent) { a.tell(a.follow("x402_pay", a.order("/report", "$0.05"))) },
		wrong: func(a *agent) { // twice, to be sure
			a.pay("/report", "$0.05")
			a.tell(a.pay("/report", "$0.05"))
		},
		finds: []string{boughtTwice},
	}, {
		name: "free page", task: "When is the shop open?",
		setup: setup{goods: map[string]goods{"/hours": {content: "open from 9 to 5"}}},
		wants: wants{answer: "from 9 to 5"},
		right: func(a *agent) { a.tell(a.pay("/hours", "$0")) },
		wrong: func(a *agent) {
			for range mostCalls + 1 {
				a.tell(a.pay("/hours", "$0"))
			}
		},
		finds: []string{loop},
	}, {
		name: "a page that is not there", task: "Get /missing, at most $0.05.",
		setup: setup{goods: report},
		wants: wants{answer: "not there"},
		right: func(a *agent) {
			got := a.follow("x402_pay", a.order("/missing", "$0.05"))
			if got.status() == "not_paid" && got.fields["httpStatus"] == 404.0 {
				a.say("it is not there; nothing was paid")
			}
		},
		wrong: func(a *agent) {
			for range 3 {
				a.pay("/missing", "$0.05")
			}
			a.say("not there")
		},
		finds: []string{deaf},
	}, {
		name: "dearer than the person allows", task: "Get the climate report, at most $0.05.",
		setup: setup{goods: map[string]goods{"/climate": {price: 50 * cent, content: "warmer"}}},
		wants: wants{purchases: 1, most: 5 * cent, answer: "$0.50"},
		right: func(a *agent) {
			got := a.follow("x402_pay", a.order("/climate", "$0.05"))
			if got.str("error") == "AMOUNT_EXCEEDS_MAX" {
				a.tell(got)
			}
		},
		wrong: func(a *agent) { // raises it by itself
			got := a.pay("/climate", "$0.05")
			a.tell(got)
			a.tell(a.pay("/climate", "$0.50"))
		},
		finds: []string{overLimit},
	}, {
		name: "two wanted, one after the other", task: "Read the thermometer twice.",
		setup: setup{goods: map[string]goods{"/now": {price: mill, answers: numbered}}},
		wants: wants{purchases: 2, answer: "reading 2"},
		right: func(a *agent) {
			a.tell(a.pay("/now", "$0.01"))
			a.tell(a.pay("/now", "$0.01"))
		},
		wrong: func(a *agent) { // one name for two purchases
			a.tell(a.pay("/now", "$0.01", "idempotencyKey", "reading"))
			a.tell(a.pay("/now", "$0.01", "idempotencyKey", "reading"))
		},
		finds: []string{unanswered},
	}, {
		name: "two wanted at once", task: "Read the thermometer twice, quickly.",
		setup: setup{goods: map[string]goods{"/now": {price: mill, answers: numbered}}},
		wants: wants{purchases: 2, answer: "reading 2"},
		right: func(a *agent) { a.atOnce(a.order("/now", "$0.01"), a.order("/now", "$0.01")) },
		wrong: func(a *agent) {
			a.atOnce(a.order("/now", "$0.01", "idempotencyKey", "r"),
				a.order("/now", "$0.01", "idempotencyKey", "r"))
		},
		finds: []string{unanswered},
	}, {
		name: "two wanted, each with its key", task: "Read the thermometer twice.",
		setup: setup{goods: map[string]goods{"/now": {price: mill, answers: numbered}}},
		wants: wants{purchases: 2, answer: "reading 2"},
		right: func(a *agent) {
			a.tell(a.follow("x402_pay", a.order("/now", "$0.01", "idempotencyKey", "first")))
			a.tell(a.follow("x402_pay", a.order("/now", "$0.01", "idempotencyKey", "second")))
		},
		wrong: func(a *agent) { // and a third, because the second might be lost
			for _, key := range []string{"first", "second", "second again"} {
				a.tell(a.pay("/now", "$0.01", "idempotencyKey", key))
			}
		},
		finds: []string{boughtTwice},
	}, {
		name: "lost answer, asked again meanwhile", task: "Get the slow report once.",
		setup: setup{goods: map[string]goods{"/slow": {price: mill, answers: numbered,
			lingers: 2500 * time.Millisecond}}},
		wants: wants{purchases: 1, answer: "reading 1"},
		right: func(a *agent) { // its host gives up, without a word; the very same call
			in := a.order("/slow", "$0.01")
			if a.hurried("x402_pay", in, time.Second).lost {
				a.tell(a.follow("x402_pay", in))
			}
		},
		wrong: func(a *agent) { // invents a key for it
			a.hurried("x402_pay", a.order("/slow", "$0.01"), time.Second)
			a.tell(a.pay("/slow", "$0.01", "idempotencyKey", "once more"))
			a.say("reading 1")
		},
		finds: []string{boughtTwice},
	}, {
		name: "lost answer, asked again later", task: "Get the slow report once.",
		setup: setup{goods: map[string]goods{"/slow": {price: mill, answers: numbered,
			lingers: 3500 * time.Millisecond}}},
		wants: wants{purchases: 1, answer: "reading 1"},
		right: func(a *agent) {
			in := a.order("/slow", "$0.01")
			if a.hurried("x402_pay", in, time.Second).lost {
				time.Sleep(5 * time.Second) // the answer came meanwhile, and nobody read it
				a.tell(a.follow("x402_pay", in))
			}
		},
		wrong: func(a *agent) { // gives up three times: the wallet pays once all the same
			in := a.order("/slow", "$0.01")
			a.hurried("x402_pay", in, time.Second)
			a.hurried("x402_pay", in, time.Second)
			time.Sleep(5 * time.Second)
			a.tell(a.call("x402_pay", in))
		},
	}, {
		name: "lost answer with a key", task: "Get the slow report once.",
		setup: setup{goods: map[string]goods{"/slow": {price: mill, answers: numbered,
			lingers: 1500 * time.Millisecond}}},
		wants: wants{purchases: 1, answer: "reading 1"},
		right: func(a *agent) {
			in := a.order("/slow", "$0.01", "idempotencyKey", "the report")
			if a.hurried("x402_pay", in, 500*time.Millisecond).lost {
				a.tell(a.follow("x402_pay", in))
			}
		},
		wrong: func(a *agent) { // a key for each attempt
			a.hurried("x402_pay", a.order("/slow", "$0.01", "idempotencyKey", "try 1"), 500*time.Millisecond)
			a.tell(a.pay("/slow", "$0.01", "idempotencyKey", "try 2"))
			a.say("reading 1")
		},
		finds: []string{boughtTwice},
	}, {
		name: "key used again", task: "Get the report, and once more from the store.",
		setup: setup{goods: map[string]goods{"/now": {price: mill, answers: numbered},
			"/other": {price: mill, content: "another thing"}}},
		wants: wants{purchases: 1, answer: "reading 1"},
		right: func(a *agent) {
			in := a.order("/now", "$0.01", "idempotencyKey", "the report")
			a.follow("x402_pay", in)
			if got := a.follow("x402_pay", in); got.status() == "replayed" {
				a.tell(got)
			}
		},
		wrong: func(a *agent) { // for something else, three times: the wallet refuses, and pays nothing
			a.tell(a.pay("/now", "$0.01", "idempotencyKey", "the report"))
			for range 3 {
				a.pay("/other", "$0.01", "idempotencyKey", "the report")
			}
		},
		finds: []string{deaf},
	}, {
		name: "history of what was bought", task: "What did we pay this seller in all?",
		setup: setup{goods: map[string]goods{"/a": {price: 2 * cent, content: "a"},
			"/b": {price: cent, content: "b"}},
			before: func(a *agent) {
				for _, path := range []string{"/a", "/b", "/a"} {
					a.pay(path, "$0.05")
				}
			}},
		wants: wants{purchases: 3, answer: "$0.05"},
		right: func(a *agent) {
			got := a.call("x402_history", args{"limit": 10})
			totals, _ := got.fields["totals"].(map[string]any)
			sellers, _ := totals["bySeller"].(map[string]any)
			for name, sum := range sellers {
				if strings.Contains(a.stand.world.shop, name) {
					a.say(price(fmt.Sprint(sum)))
				}
			}
		},
		wrong: func(a *agent) { // reads one row
			got := a.call("x402_history", args{"limit": 1})
			rows, _ := got.fields["transactions"].([]any)
			a.say(fmt.Sprint(rows...))
		},
		finds: []string{unanswered},
	},
}

func price(sum string) string { return "$" + strings.TrimPrefix(sum, "$") }

func (a *agent) atOnce(calls ...args) {
	var all sync.WaitGroup
	for _, in := range calls {
		all.Go(func() { a.tell(a.call("x402_pay", in)) })
	}
	all.Wait()
}

func isDo(got answer, do x402.Step) bool { return got.next().Do == do }
