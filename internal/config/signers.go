package config

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Signer is one that keeps the wallet's key for a chain itself, [signers.NAME]. It holds no secret: those
// that its service asks for are in a file, or come from a command or a variable, which it names.
type Signer struct {
	Kind    string        `toml:"kind"`    // one of SignerKinds
	Chain   string        `toml:"chain"`   // "evm" or "solana"
	Address string        `toml:"address"` // of its key; no signature of another counts
	Timeout time.Duration `toml:"-"`
	Command []string      `toml:"command"` // command: the program and its arguments
	// command: the variables of ours that it gets besides ChildEnv's own
	Env     []string `toml:"env"`
	Sandbox *bool    `toml:"sandbox"` // of a command, as of a server that is one
	// what the service calls the key; of keychain the account of its item
	Key    string `toml:"key"`
	Region string `toml:"region"` // aws-kms
	// turnkey: the one that the key is of
	Organization string `toml:"organization"`
	URL          string `toml:"url"` // where the service's API is; "": where its provider has it
	// Where its credentials are: one of the three.
	SecretFile    string   `toml:"secret_file"`
	SecretCommand []string `toml:"secret_command"`
	SecretEnv     string   `toml:"secret_env"`
}

type fileSigner struct {
	Signer
	Timeout *string `toml:"timeout"`
}

// The kinds of signers.
const (
	SignerCommand  = "command"
	SignerAWS      = "aws-kms"
	SignerGoogle   = "gcp-kms"
	SignerCDP      = "cdp"
	SignerTurnkey  = "turnkey"
	SignerKeychain = "keychain"
)

func SignerKinds() []string {
	return []string{SignerCommand, SignerAWS, SignerGoogle, SignerCDP, SignerTurnkey, SignerKeychain}
}

// The chains that a signer signs on.
const signerEVM, signerSolana = "evm", "solana"

// How long a signer may take. A person may have to press a button on a device.
const defaultSigning, leastSigning, mostSigning = 30 * time.Second, time.Second, 5 * time.Minute

func (c *Checker) signers(written map[string]fileSigner) map[string]Signer {
	signers := map[string]Signer{}
	of := map[string]string{} // chain → who signs on it
	for _, name := range sorted(written) {
		key, f := Dotted("signers", name), written[name]
		c.Refuse(!IsName(name) || name == "keystore", key,
			"a signer's name is 1 to 40 of a-z, 0-9, - and _, begins with a letter, and is not keystore")
		c.OneOf(key+".kind", &f.Kind, SignerKinds()...)
		c.OneOf(key+".chain", &f.Chain, signerEVM, signerSolana)
		other, twice := of[f.Chain]
		c.Refuse(twice, key+".chain", "is that of the signer %s, too: one signs on a chain", other)
		of[f.Chain] = name
		c.signerAddress(key+".address", f.Chain, f.Address)
		s := f.Signer
		s.Timeout = c.Duration(key+".timeout", f.Timeout, defaultSigning, leastSigning, mostSigning)
		if s.Kind == SignerCommand {
			c.signerCommand(key, s)
		}
		c.signerService(key, s)
		c.signerSecret(key, s)
		signers[name] = s
	}
	return signers
}

// signerAddress wants the address in the one spelling by which signatures are compared with it. An EVM
// checksum is looked at where addresses are (package app).
func (c *Checker) signerAddress(key, chain, address string) {
	isEVM := evmAddress().MatchString(address)
	switch {
	case chain == signerEVM && !isEVM:
		c.Fail(key, "%q is not an EVM address (0x and 40 hex digits)", address)
	case chain == signerSolana && !isSolanaAddress(address):
		c.Fail(key, "%q is not a Solana address (base58 of 32 bytes)", address)
	}
}

func (c *Checker) signerCommand(key string, s Signer) {
	if len(s.Command) == 0 {
		c.Fail(key, `needs command = ["/full/path/to/the/program", …]`)
		return
	}
	c.fullPath(key+".command", s.Command[0])
	c.Variables(key+".env", s.Env)
}

// signerService wants of a service what it is asked by, and nothing that would mean nothing.
func (c *Checker) signerService(key string, s Signer) {
	isCommand := s.Kind == SignerCommand
	c.Refuse(!isCommand && (s.Command != nil || s.Env != nil), key,
		"has command or env, which are for kind = \"command\"")
	c.Refuse(!isCommand && s.Sandbox != nil && len(s.SecretCommand) == 0, key,
		"has sandbox, which is for kind = \"command\" or secret_command")
	for _, field := range []struct {
		name, value string
		kinds       []string // that need it
	}{
		{"key", s.Key, []string{SignerAWS, SignerGoogle, SignerCDP, SignerTurnkey, SignerKeychain}},
		{"region", s.Region, []string{SignerAWS}},
		{"organization", s.Organization, []string{SignerTurnkey}},
	} {
		isFor := slices.Contains(field.kinds, s.Kind)
		c.Refuse(isFor && field.value == "", key, "needs %s = \"…\"", field.name)
		c.Refuse(!isFor && field.value != "", key+"."+field.name, "means nothing for kind = %q", s.Kind)
		plain := !strings.ContainsFunc(field.value, func(r rune) bool { return r <= ' ' || r > '~' })
		c.Refuse(!plain || len(field.value) > maxSignerField, key+"."+field.name,
			"must be at most %d printable letters without spaces", maxSignerField)
	}
	hasAPI := !isCommand && s.Kind != SignerKeychain
	c.Refuse(!hasAPI && s.URL != "", key+".url", "means nothing for kind = %q", s.Kind)
	if s.URL != "" && hasAPI {
		at := c.OwnerURL(key+".url", s.URL, "https://…")
		c.Refuse(at != nil && (at.User != nil || at.RawQuery != "" || at.Fragment != ""), key+".url",
			"is an address without a name, password, ? or #; credentials are in secret_file")
	}
}

// maxSignerField bounds what a service calls a key: Google's resource names have 300 letters at most.
const maxSignerField = 512

func (c *Checker) signerSecret(key string, s Signer) {
	given := 0
	for _, has := range []bool{s.SecretFile != "", len(s.SecretCommand) > 0, s.SecretEnv != ""} {
		if has {
			given++
		}
	}
	switch {
	case s.Kind == SignerCommand || s.Kind == SignerKeychain:
		c.Refuse(given > 0, key, "has secret_file, secret_command or secret_env, which mean nothing for "+
			"kind = %q", s.Kind)
		return
	case given != 1:
		c.Fail(key, "needs its credentials from one of secret_file, secret_command and secret_env")
		return
	}
	c.Refuse(s.SecretFile != "" && !filepath.IsAbs(s.SecretFile), key+".secret_file", "must be a full path")
	if len(s.SecretCommand) > 0 {
		c.fullPath(key+".secret_command", s.SecretCommand[0])
	}
	c.Refuse(s.SecretEnv != "" && !variableName().MatchString(s.SecretEnv), key+".secret_env",
		"%q is not the name of a variable; write the name alone, without its value", s.SecretEnv)
}
