package config

import (
	"bytes"
	"fmt"
	"path/filepath"

	"x402-wallet/internal/ownfile"
)

// Text is what c was read from: what the owner seals.
func (c *Config) Text() []byte { return c.Raw }

// ChangesSince lists what c changes of the rules that were sealed.
func (c *Config) ChangesSince(sealed []byte) ([]Change, error) {
	then, err := Parse(sealed)
	if err != nil {
		return nil, fmt.Errorf("the rules that were sealed cannot be read any more: %w", err)
	}
	return Compare(then, c), nil
}

// LoosenedSince names the keys that c loosens of the rules that were sealed, and reports whether it changes
// any.
func (c *Config) LoosenedSince(sealed []byte) (loosened []string, changed bool, err error) {
	changes, err := c.ChangesSince(sealed)
	for _, change := range changes {
		if change.Loosens {
			loosened = append(loosened, change.Key)
		}
	}
	return loosened, len(changes) > 0, err
}

// Same reports whether <home>/config.toml still is what c was read from.
func (c *Config) Same(home string) bool {
	data, _, err := ownfile.Read(filepath.Join(home, FileName), MaxFile)
	return err == nil && bytes.Equal(data, c.Raw)
}

// IsStale reports whether <home>/config.toml is tighter than c by now, sealed or not. A file that cannot be
// read is for the next call to find.
func (c *Config) IsStale(home string) bool {
	if c.Same(home) {
		return false
	}
	now, err := Load(home)
	return err == nil && Loosens(Compare(now, c))
}

// Replace writes other rules into <home>/config.toml, unless it was edited since c was read.
func (c *Config) Replace(home string, text []byte) error {
	if !c.Same(home) {
		return nil
	}
	return ownfile.Write(filepath.Join(home, FileName), text)
}
