package metrics

import (
	"bytes"
	"io"
)

// help describes every family. The library writes HELP lines without a text.
var help = map[string]string{
	"go_goroutines":                                      "Goroutines.",
	"process_cpu_seconds_total":                          "Processor time, user and system.",
	"process_max_fds":                                    "File descriptors that may be open.",
	"process_open_fds":                                   "File descriptors that are open.",
	"process_resident_memory_bytes":                      "Memory in use.",
	"process_start_time_seconds":                         "Start of the process, since 1970.",
	"x402_wallet_approvals_oldest_age_seconds":           "Age of the oldest waiting approval, or 0.",
	"x402_wallet_approvals_waiting":                      "Approvals that wait for a person.",
	"x402_wallet_balance_dollars":                        "Spendable balance when the node was last asked.",
	"x402_wallet_balance_read_timestamp_seconds":         "Time of that balance, since 1970.",
	"x402_wallet_budget_limit_dollars":                   "The owner's limits.",
	"x402_wallet_budget_used_dollars":                    "Spent or held within the owner's limits.",
	"x402_wallet_build_info":                             "Version of the program and of Go.",
	"x402_wallet_calls_waiting":                          "Calls in the queue.",
	"x402_wallet_calls_working":                          "Calls under way.",
	"x402_wallet_earned_dollars_total":                   "Dollars received for sales.",
	"x402_wallet_facilitator_answered_timestamp_seconds": "Last answer of a facilitator, since 1970.",
	"x402_wallet_facilitator_request_seconds":            "Duration of requests to facilitators.",
	"x402_wallet_facilitator_requests_total":             "Requests to facilitators.",
	"x402_wallet_frozen":                                 "Whether everything is frozen: 0 or 1.",
	"x402_wallet_frozen_accounts":                        "Frozen accounts.",
	"x402_wallet_held_dollars":                           "Dollars held for payments under way.",
	"x402_wallet_held_payments":                          "Payments under way.",
	"x402_wallet_ledger_readable":                        "Whether the ledger could be read: 0 or 1.",
	"x402_wallet_node_answered_timestamp_seconds":        "Last answer of a network's node, since 1970.",
	"x402_wallet_node_request_seconds":                   "Duration of requests to networks' nodes.",
	"x402_wallet_node_requests_total":                    "Requests to networks' nodes.",
	"x402_wallet_owed_channels":                          "Channels with unclaimed charges.",
	"x402_wallet_owed_dollars":                           "Dollars charged in channels and not claimed.",
	"x402_wallet_owed_oldest_age_seconds":                "Age of the oldest unclaimed charge, or 0.",
	"x402_wallet_paid_dollars_total":                     "Dollars that calls paid.",
	"x402_wallet_payment_seconds":                        "Duration of calls that may pay.",
	"x402_wallet_payment_step_seconds":                   "Duration of the steps of payments.",
	"x402_wallet_payments_total":                         "Calls that may pay, by outcome.",
	"x402_wallet_paywall_calls":                          "Requests over HTTP under way.",
	"x402_wallet_paywall_refused_total":                  "Requests over HTTP refused for load.",
	"x402_wallet_paywall_sessions":                       "Sessions of clients over HTTP.",
	"x402_wallet_sale_step_seconds":                      "Duration of the steps of sales.",
	"x402_wallet_sales_running":                          "Sales under way.",
	"x402_wallet_sales_total":                            "Requests for what is sold, by outcome.",
	"x402_wallet_sessions":                               "Sessions of agents.",
	"x402_wallet_unknown_dollars":                        "Dollars held for payments of unknown outcome.",
	"x402_wallet_unknown_oldest_age_seconds":             "Age of the oldest of them, or 0.",
	"x402_wallet_unknown_overdue_payments":               "Payments of unknown outcome past their validity.",
	"x402_wallet_unknown_payments":                       "Payments of unknown outcome.",
}

// writeWithHelp copies a text in Prometheus' format and adds the descriptions.
func writeWithHelp(w io.Writer, text []byte) {
	for line := range bytes.Lines(text) {
		if family, is := bytes.CutPrefix(line, []byte("# HELP ")); is {
			family = bytes.TrimSpace(family)
			line = []byte("# HELP " + string(family) + " " + help[string(family)] + "\n")
		}
		_, _ = w.Write(line)
	}
}
