package signer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"x402-wallet/internal/child"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/x402"
)

// maxSecret bounds credentials, in bytes: a service account's of Google has 2.4 KiB.
const maxSecret = 16 << 10

// secretLife is how long is kept what secret_command printed, where that does not say itself how long it is
// good.
const secretLife = time.Minute

// credentials are those of a signer's API, from where the rules say. A file and a variable are read each
// time: the owner may change them.
type credentials struct {
	rules   config.Signer
	options Options

	mu    sync.Mutex
	text  []byte // what secret_command printed
	until time.Time
}

// read reads the credentials, which are JSON, into a struct; raw gets a text that is none. Errors have
// nothing of them.
func (c *credentials) read(ctx context.Context, into any) (raw string, err error) {
	text, err := c.get(ctx)
	if err != nil {
		return "", err
	}
	text = bytes.TrimSpace(text)
	if len(text) == 0 || text[0] != '{' {
		return string(text), nil
	}
	if x402.DecodeStrict(text, maxSecret, nil) != nil || json.Unmarshal(text, into) != nil {
		return "", refused("has credentials that cannot be read as JSON")
	}
	return "", nil
}

func (c *credentials) get(ctx context.Context) ([]byte, error) {
	switch r := c.rules; {
	case r.SecretFile != "":
		text, err := c.options.Secret(r.SecretFile)
		if err != nil {
			return nil, refused("has no credentials: secret_file could not be read, or others can read it "+
				"(chmod 600 %s)", r.SecretFile)
		}
		return []byte(text.Reveal()), nil
	case r.SecretEnv != "":
		text := environ.SignerSecret(r.SecretEnv).Reveal()
		if text == "" {
			return nil, refused("has no credentials: the variable %s is not set here", r.SecretEnv)
		}
		return []byte(text), nil
	}
	return c.byCommand(ctx)
}

// byCommand is what secret_command prints.
func (c *credentials) byCommand(ctx context.Context) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.options.Now()
	if now.Before(c.until) {
		return c.text, nil
	}
	out, _, err := c.options.Program(c.rules.SecretCommand, nil, c.rules.Sandbox).Ask(ctx, nil,
		child.Limits{Answer: maxSecret})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err == nil && len(bytes.TrimSpace(out)) == 0 {
		err = errors.New("it printed nothing")
	}
	if err != nil {
		return nil, refused("has no credentials: secret_command failed, printed nothing or too much")
	}
	var says struct{ Expiration time.Time } // as `aws configure export-credentials` does
	c.text, c.until = out, now.Add(secretLife)
	if json.Unmarshal(out, &says) == nil && says.Expiration.Before(c.until) && !says.Expiration.IsZero() {
		c.until = says.Expiration.Add(-secretLife)
	}
	return c.text, nil
}
