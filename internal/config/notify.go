package config

import (
	"path/filepath"

	"x402-wallet/x402/money"
)

// notify says how the owner is told of what waits for them.
type notify struct {
	Command []string `toml:"command"` // gets the notice on stdin; none: it is not told so
	Sandbox *bool    `toml:"sandbox"` // as of a server that is a command
	Webhook string   `toml:"webhook"` // "": it is not told so
	// an owner-only file with the key that signs what is posted to Webhook
	WebhookSecretFile string        `toml:"webhook_secret_file"`
	Desktop           bool          `toml:"desktop"`
	LowFunds          money.Dollars `toml:"low_funds"` // less than this left is told; 0: nothing is
}

func (c *Checker) notify(n notify, system string) notify {
	if len(n.Command) > 0 {
		c.fullPath("notify.command", n.Command[0])
	}
	c.Refuse(n.Sandbox != nil && len(n.Command) == 0, "notify.sandbox", "is for a command, and there is none")
	if n.Webhook != "" {
		at := c.OwnerURL("notify.webhook", n.Webhook, "https://ops.example/x402")
		c.Refuse(at != nil && at.User != nil, "notify.webhook", "has a name or password in it; what is "+
			"posted is signed, and needs none")
	}
	c.Refuse((n.Webhook != "") != (n.WebhookSecretFile != ""), "notify", `webhook = "https://…" and `+
		`webhook_secret_file = "a file with one line whsec_…" go together`)
	c.Refuse(n.WebhookSecretFile != "" && !filepath.IsAbs(n.WebhookSecretFile), "notify.webhook_secret_file",
		"must be a full path")
	c.Refuse(n.LowFunds != 0 && len(n.Command) == 0 && n.Webhook == "" && !n.Desktop, "notify.low_funds",
		"is to be told, and there is nothing to tell it by")
	c.Refuse(n.Desktop && system == "windows", "notify.desktop", "is not there on Windows in this version; "+
		"command and webhook are")
	return n
}

// fullPath refuses a program that would be looked for.
func (c *Checker) fullPath(key, program string) {
	c.Refuse(!filepath.IsAbs(program), key,
		"begins with %q, which would be looked for in PATH, and whoever starts the wallet chooses that; "+
			"write the program's full path, which `command -v NAME` prints: [\"/usr/bin/…\", …]", program)
}
