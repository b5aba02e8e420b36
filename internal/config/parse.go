package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"x402-wallet/internal/pattern"
)

// MaxFile bounds config.toml: a thousand sellers' budgets fit in it, a mistaken file does not
// get into memory.
const MaxFile = 256 << 10

// Error is a fault in config.toml: where it is and what would be right.
type Error struct {
	File string // "" is config.toml
	Line int    // 1-based; 0 when it is in no single line
	Key  string // dotted
	Msg  string
}

// Error is "config.toml line 3: budget.per_call: …".
func (e *Error) Error() string {
	where := cmp.Or(e.File, "config.toml")
	if e.Line > 0 {
		where += fmt.Sprintf(" line %d", e.Line)
	}
	if e.Key != "" {
		where += ": " + e.Key
	}
	return where + ": " + e.Msg
}

// Code and Hint are the error as the outside sees it.
func (e *Error) Code() string { return "SETUP_FAILED" }

// Hint says what to do.
func (e *Error) Hint() string {
	if e.File != "" {
		return "correct " + e.File
	}
	return "the owner corrects config.toml and runs `x402-wallet policy seal`"
}

// file is config.toml as it is written. Pointers tell an absent key from a zero one; money, times
// and rules are strings here and get their meaning in check.go.
type file struct {
	Budget struct {
		PerCall      *string `toml:"per_call"`
		Session      *string `toml:"session"`
		Day          *string `toml:"day"`
		Month        *string `toml:"month"`
		ApproveAbove *string `toml:"approve_above"`
		Rate         *int    `toml:"rate"`
		Hosts        map[string]struct {
			Day *string `toml:"day"`
		} `toml:"hosts"`
		Teams  map[string]fileTeam      `toml:"teams"`
		Agents map[string]fileEachAgent `toml:"agents"`
	} `toml:"budget"`
	Policy struct {
		AllowHosts        []string  `toml:"allow_hosts"`
		DenyHosts         []string  `toml:"deny_hosts"`
		Payees            []string  `toml:"payees"`
		NewPayee          *string   `toml:"new_payee"`
		PayeeChange       *string   `toml:"payee_change"`
		PriceJump         *float64  `toml:"price_jump"`
		SignIn            *string   `toml:"sign_in"`
		MaxFailures       *int      `toml:"max_failures"`
		Loopback          []string  `toml:"loopback"`
		MaxTimeout        *int      `toml:"max_timeout_seconds"`
		Deadline          *string   `toml:"deadline"`
		MaxWait           *string   `toml:"max_wait"`
		PublicNodes       *bool     `toml:"public_nodes"`
		KnownFacilitators *bool     `toml:"known_facilitators"`
		Quota             *string   `toml:"content_quota"`
		Prefer            *[]string `toml:"prefer"`
		Schemes           *[]string `toml:"schemes"`
		ChannelDeposit    *string   `toml:"channel_deposit"`
		ChannelDelay      *string   `toml:"channel_delay"`
		NetworkFee        *string   `toml:"network_fee"`
	} `toml:"policy"`
	Network struct {
		Proxy string `toml:"proxy"`
	} `toml:"network"`
	Networks map[string]struct {
		RPC           *string `toml:"rpc"`
		TokenAccount  string  `toml:"token_account"`
		Vault         string  `toml:"vault"`
		AllowanceFrom string  `toml:"allowance_from"`
		Float         *string `toml:"float"`
		MaxGas        *string `toml:"max_gas"`
		ApprovalGas   *string `toml:"approval_gas"`
		Until         string  `toml:"until"`
	} `toml:"networks"`
	Assets       []fileAsset          `toml:"assets"`
	Facilitators []WrittenFacilitator `toml:"facilitators"`
	Discovery    struct {
		Directories []string `toml:"directories"`
	} `toml:"discovery"`
	Hosts map[string]struct {
		Settle *string `toml:"settle"`
		Credit bool    `toml:"credit"`
	} `toml:"hosts"`
	Servers       map[string]server           `toml:"servers"`
	Agents        map[string]fileAgent        `toml:"agents"`
	Service       service                     `toml:"service"`
	Passkeys      map[string]Passkey          `toml:"passkeys"`
	Subscriptions map[string]fileSubscription `toml:"subscriptions"`
	Signers       map[string]fileSigner       `toml:"signers"`
	Hooks         fileHooks                   `toml:"hooks"`
	Notify        notify                      `toml:"notify"`
	Log           struct {
		Format *string `toml:"format"`
	} `toml:"log"`
	Traces   fileTraces `toml:"traces"`
	Metrics  figures    `toml:"metrics"`
	Ledger   ledger     `toml:"ledger"`
	Keystore struct {
		PassphraseFile    string   `toml:"passphrase_file"`
		PassphraseCommand []string `toml:"passphrase_command"`
		Sandbox           *bool    `toml:"sandbox"`
		Keyring           bool     `toml:"keyring"`
		Idle              *string  `toml:"idle"`
	} `toml:"keystore"`
	Channel struct {
		DID        string  `toml:"did"`
		DepositCap *string `toml:"deposit_cap"`
	} `toml:"channel"`
	Env bool `toml:"env"`
}

type fileAsset struct {
	Network   string  `toml:"network"`
	Address   string  `toml:"address"`
	Symbol    string  `toml:"symbol"`
	Decimals  *int    `toml:"decimals"`
	USD       *string `toml:"usd"`
	Margin    *string `toml:"margin"`
	Name      string  `toml:"name"`
	Version   string  `toml:"version"`
	Token2022 bool    `toml:"token2022"`
}

// Parse reads config.toml. The errors of several keys come joined; each is an *Error.
func Parse(data []byte) (*Config, error) {
	if len(data) > MaxFile {
		return nil, &Error{Msg: fmt.Sprintf("is %d bytes long; at most %d are read", len(data), MaxFile)}
	}
	if bytes.HasPrefix(data, []byte("\ufeff")) || bytes.HasPrefix(data, []byte("\xff\xfe")) {
		// as some editors of Windows write it
		return nil, &Error{Line: 1, Msg: "begins with a byte-order mark; save it as UTF-8 without one"}
	}
	var f file
	c, err := Read("", data, &f)
	if err != nil {
		return nil, err
	}
	config := c.config(&f)
	if err := c.Err(); err != nil {
		return nil, err
	}
	config.Raw, config.Warnings = bytes.Clone(data), c.warnings
	return config, nil
}

// Read decodes a file strictly; the Checker that it returns knows the lines of its keys.
func Read(name string, data []byte, into any) (*Checker, error) {
	c := &Checker{file: name, lines: map[string]int{}}
	if err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(into); err != nil {
		return nil, c.decodeError(data, err)
	}
	c.index(data)
	return c, nil
}

// typeFault picks the two types out of the TOML library's message, which names our structs where
// people need a remedy.
var typeFault = pattern.Lazy(`^toml: cannot decode TOML (.+?) into (?:.* of type )?(.+)$`)

func (c *Checker) decodeError(data []byte, err error) error {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		var all []error
		for i := range unknown.Errors {
			e := &unknown.Errors[i]
			line, _ := e.Position()
			all = append(all, &Error{File: c.file, Line: line, Key: Dotted(e.Key()...),
				Msg: "there is no such key"})
		}
		return errors.Join(all...)
	}
	var fault *toml.DecodeError
	if !errors.As(err, &fault) {
		return &Error{File: c.file, Msg: err.Error()}
	}
	line, column := fault.Position()
	e := &Error{File: c.file, Line: line, Key: Dotted(fault.Key()...),
		Msg: strings.TrimPrefix(fault.Error(), "toml: ")}
	switch key := e.Key; {
	case strings.Contains(e.Msg, "cannot store an array table"):
		e.Msg = "is one table, with single brackets, not [[" + key + "]]"
	case strings.Contains(e.Msg, "cannot store a table"):
		e.Msg = "is a value, not a table"
	}
	if types := typeFault().FindStringSubmatch(fault.Error()); types != nil {
		e.Msg = typeMessage(types[1], types[2], valueAt(data, line, column))
	}
	return e
}

func typeMessage(got, want, value string) string {
	isNumber := got == "float" || got == "integer"
	wantsNumber := want == "int" || want == "float64"
	expected, known := map[string]string{"string": "text in quotes", "int": "a whole number",
		"float64": "a number", "bool": "true or false", "[]string": `a list like ["…"]`}[want]
	switch {
	case want == "string" && isNumber:
		return fmt.Sprintf(`is written as text, not as a number: "%s"`, value)
	case wantsNumber && got == "string":
		return fmt.Sprintf("is a number, without quotes: %s", strings.Trim(value, `"'`))
	case !known && strings.HasPrefix(want, "[]"):
		expected = `a list like [ { … } ]`
	case !known:
		expected = "a table"
	}
	return "must be " + expected + ", not " + article(got)
}

func article(kind string) string {
	if strings.ContainsRune("aeiou", rune(kind[0])) {
		return "an " + kind
	}
	return "a " + kind
}

// valueAt is the bare or quoted value that starts at a position.
func valueAt(data []byte, line, column int) string {
	rows := strings.Split(string(data), "\n")
	if line < 1 || line > len(rows) || column < 1 || column > len(rows[line-1]) {
		return ""
	}
	value, _, _ := strings.Cut(rows[line-1][column-1:], "#")
	return strings.TrimRight(strings.TrimSpace(value), ",}] \r")
}

var plainKey = pattern.Lazy(`^[A-Za-z0-9_-]+$`)

// Dotted writes a key as it would be written in the file.
func Dotted(parts ...string) string {
	written := slices.Clone(parts)
	for i, part := range parts {
		if !plainKey().MatchString(part) {
			written[i] = strconv.Quote(part)
		}
	}
	return strings.Join(written, ".")
}

// index notes the line of every key, for messages, and refuses keys whose letter case is not ours: the
// TOML library would take `Per_Call` for `per_call`, and of two such spellings the last would win unseen.
func (c *Checker) index(data []byte) {
	p := unstable.Parser{}
	p.Reset(data)
	var table []string
	elements := map[string]int{}
	for p.NextExpression() {
		node := p.Expression()
		line := bytes.Count(data[:FirstKey(node).Offset], []byte("\n")) + 1
		switch node.Kind {
		case unstable.Table:
			table = KeyParts(node)
			c.note(table, line)
		case unstable.ArrayTable:
			name := KeyParts(node)
			table = slices.Concat(name, []string{strconv.Itoa(elements[Dotted(name...)])})
			elements[Dotted(name...)]++
			c.note(table, line)
		case unstable.KeyValue:
			c.noteValue(table, node, line)
		}
	}
}

// noteValue notes a key and the keys in its value.
func (c *Checker) noteValue(table []string, node *unstable.Node, line int) {
	path := slices.Concat(table, KeyParts(node))
	c.note(path, line)
	c.noteInside(path, node.Value(), line)
}

// noteInside notes the keys of an inline table, and of those in a list.
func (c *Checker) noteInside(path []string, value *unstable.Node, line int) {
	inside := value.Children()
	switch value.Kind {
	case unstable.InlineTable:
		for inside.Next() {
			c.noteValue(path, inside.Node(), line)
		}
	case unstable.Array:
		for i := 0; inside.Next(); i++ {
			c.noteInside(slices.Concat(path, []string{strconv.Itoa(i)}), inside.Node(), line)
		}
	}
}

// freeNames are the tables whose own keys are names the owner chose.
var freeNames = map[string]bool{"networks": true, "budget.hosts": true, "hosts": true, "servers": true,
	"tools": true, "resources": true, "prompts": true}

// isFree reports whether a table's own keys are names: of a subscription's headers, too.
func isFree(table []string) bool {
	isHeaders := len(table) == 3 && table[0] == "subscriptions" && table[2] == "headers"
	return freeNames[Dotted(table...)] || isHeaders
}

func (c *Checker) note(path []string, line int) {
	c.lines[Dotted(path...)] = line
	for i, part := range path {
		if part != strings.ToLower(part) && !isFree(path[:i]) {
			lower := slices.Concat(path[:i], []string{strings.ToLower(part)})
			c.Fail(Dotted(path...), "is spelt %s", Dotted(lower...))
			return
		}
	}
}

func FirstKey(node *unstable.Node) unstable.Range {
	key := node.Key()
	key.Next()
	return key.Node().Raw
}

func KeyParts(node *unstable.Node) (parts []string) {
	for key := node.Key(); key.Next(); {
		parts = append(parts, string(key.Node().Data))
	}
	return parts
}
