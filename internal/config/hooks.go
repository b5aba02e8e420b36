package config

import "time"

// hooks are programs of the owner's that have a say before each payment, and hear of it after.
type hooks struct {
	Before  []string      `toml:"before"`  // may refuse a payment; none: nobody is asked
	After   []string      `toml:"after"`   // is told what came of it; none: nobody is told
	Sandbox *bool         `toml:"sandbox"` // of both, as of a server that is a command
	Timeout time.Duration `toml:"-"`       // of each call
}

type fileHooks struct {
	hooks
	Timeout *string `toml:"timeout"`
}

func (c *Checker) hooks(f fileHooks) hooks {
	for key, command := range map[string][]string{"hooks.before": f.Before, "hooks.after": f.After} {
		if len(command) > 0 {
			c.fullPath(key, command[0])
		}
	}
	isNone := len(f.Before) == 0 && len(f.After) == 0
	c.Refuse(isNone && (f.Sandbox != nil || f.Timeout != nil), "hooks",
		`has no program: before = ["/usr/local/bin/…"] or after = ["/usr/local/bin/…"]`)
	h := f.hooks
	h.Timeout = c.Duration("hooks.timeout", f.Timeout, 10*time.Second, time.Second, time.Minute)
	return h
}
