package agent

import "fmt"

var weather = []tool{{name: "forecast", price: "0.001", says: "sunny tomorrow"},
	{name: "hello", says: "hi there"}}

func forecast(in args) args {
	return args{"server": "shop", "tool": "forecast", "arguments": in, "maxAmount": "$0.01"}
}

var lisbon = args{"city": "Lisbon"}

var servers = []scenario{
	{
		name: "a paid tool", task: "What will the weather be in Lisbon? At most $0.01.",
		setup: setup{tools: weather},
		wants: wants{purchases: 1, most: cent, answer: "sunny tomorrow"},
		right: func(a *agent) {
			a.call("x402_list_tools", args{"server": "shop"})
			a.tell(a.follow("x402_call_tool", forecast(lisbon)))
		},
		wrong: func(a *agent) {
			for range 2 {
				a.tell(a.call("x402_call_tool", forecast(lisbon)))
			}
		},
		finds: []string{boughtTwice},
	}, {
		name: "a paid tool, wrongly asked", task: "What will the weather be in Lisbon?",
		setup: setup{tools: weather},
		wants: wants{purchases: 1, answer: "sunny tomorrow"},
		right: func(a *agent) { // reads what is missing, and asks again with it
			got := a.call("x402_call_tool", forecast(args{}))
			if fmt.Sprint(got.next().Do) == "change" {
				got = a.follow("x402_call_tool", forecast(lisbon))
			}
			a.tell(got)
		},
		wrong: func(a *agent) {
			for range 3 {
				a.tell(a.call("x402_call_tool", forecast(args{})))
			}
		},
		finds: []string{deaf, unanswered},
	}, {
		name: "a tool that is not there", task: "What will the weather be in Lisbon?",
		setup: setup{tools: weather},
		wants: wants{purchases: 1, answer: "sunny tomorrow"},
		right: func(a *agent) {
			in := forecast(lisbon)
			in["tool"] = "weather"
			got := a.call("x402_call_tool", in)
			if got.str("error") == "TOOL_NOT_FOUND" {
				a.call("x402_list_tools", args{"server": "shop"})
				got = a.follow("x402_call_tool", forecast(lisbon))
			}
			a.tell(got)
		},
		wrong: func(a *agent) {
			in := forecast(lisbon)
			in["tool"] = "weather"
			for range 3 {
				a.tell(a.call("x402_call_tool", in))
			}
		},
		finds: []string{deaf, unanswered},
	}, {
		name: "a free tool", task: "Say hello to the server.",
		setup: setup{tools: weather},
		wants: wants{answer: "hi there"},
		right: func(a *agent) {
			a.tell(a.call("x402_call_tool", args{"server": "shop", "tool": "hello", "arguments": lisbon,
				"maxAmount": "$0"}))
		},
		wrong: func(a *agent) { // a server that is not in the owner's rules
			in := args{"server": "http://169.254.169.254/mcp", "tool": "hello", "arguments": lisbon}
			a.tell(a.call("x402_call_tool", in))
		},
		finds: []string{unanswered},
	},
}
