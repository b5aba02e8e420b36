package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"x402-wallet/budget"
	"x402-wallet/x402/money"
)

// Change is one rule that differs between two versions of config.toml.
type Change struct {
	Key     string `json:"key"` // "budget.day"
	From    string `json:"from"`
	To      string `json:"to"`
	Loosens bool   `json:"loosens"` // it may let the agent do more; false only where it provably does not
}

// Compare lists what differs, in the order of the file. Every key is compared, so a key this
// function knows nothing of is a change that loosens.
func Compare(from, to *Config) (list []Change) {
	after := leaves(to)
	for i, before := range leaves(from) {
		if reflect.DeepEqual(before.value, after[i].value) {
			continue
		}
		tighter, known := tightenings[before.key]
		list = append(list, Change{Key: before.key, From: before.show(), To: after[i].show(),
			Loosens: !known || !tighter(from, to)})
	}
	return list
}

// Loosens reports whether any of the changes does.
func Loosens(list []Change) bool {
	return slices.ContainsFunc(list, func(c Change) bool { return c.Loosens })
}

// Line is one rule for a person to read.
type Line struct {
	Key, Value string
	List       []string // the parts of a value that has several
}

// Lines are all rules.
func (c *Config) Lines() (list []Line) {
	for _, l := range leaves(c) {
		list = append(list, Line{Key: l.key, Value: l.show(), List: parts(reflect.ValueOf(l.value))})
	}
	return list
}

type leaf struct {
	key   string
	value any
}

// leaves are all rules, in the order of the fields.
func leaves(c *Config) (list []leaf) {
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		switch {
		case name == "Raw" || name == "Warnings":
		case field.Kind() != reflect.Struct:
			list = append(list, leaf{key: snake(name), value: field.Interface()})
		default:
			for j := range field.NumField() {
				key := snake(name) + "." + snake(field.Type().Field(j).Name)
				list = append(list, leaf{key: cmp.Or(otherwise[key], key), value: field.Field(j).Interface()})
			}
		}
	}
	return list
}

// tightenings says for a key whether its change lets the agent do nothing that it could not do
// before. Keys that are missing here (nodes, facilitators, assets, servers, where secrets come
// from, …) have no such direction.
var tightenings = map[string]func(from, to *Config) bool{
	"budget.per_call":      func(a, b *Config) bool { return b.Budget.PerCall <= a.Budget.PerCall },
	"budget.session":       func(a, b *Config) bool { return noMore(a.Budget.Session, b.Budget.Session) },
	"budget.day":           func(a, b *Config) bool { return b.Budget.Day <= a.Budget.Day },
	"budget.month":         func(a, b *Config) bool { return b.Budget.Month <= a.Budget.Month },
	"budget.approve_above": func(a, b *Config) bool { return b.Budget.ApproveAbove <= a.Budget.ApproveAbove },
	"budget.rate":          func(a, b *Config) bool { return b.Budget.Rate <= a.Budget.Rate },
	"budget.hosts": func(a, b *Config) bool {
		for host, limit := range a.Budget.HostDay {
			if now, still := b.Budget.HostDay[host]; !still || now > limit {
				return false
			}
		}
		return true
	},
	"policy.allow_hosts": func(a, b *Config) bool {
		if len(a.Policy.AllowHosts) == 0 { // any host was allowed
			return true
		}
		return len(b.Policy.AllowHosts) > 0 && within(b.Policy.AllowHosts, a.Policy.AllowHosts)
	},
	"policy.deny_hosts": func(a, b *Config) bool { return within(a.Policy.DenyHosts, b.Policy.DenyHosts) },
	"policy.new_payee": func(a, b *Config) bool {
		return strictness[b.Policy.NewPayee] >= strictness[a.Policy.NewPayee]
	},
	"policy.payee_change": func(a, b *Config) bool {
		return strictness[b.Policy.PayeeChange] >= strictness[a.Policy.PayeeChange]
	},
	"policy.price_jump": func(a, b *Config) bool { return b.Policy.PriceJump <= a.Policy.PriceJump },
	"policy.max_failures": func(a, b *Config) bool {
		before, after := a.Policy.MaxFailures, b.Policy.MaxFailures
		if before == 0 { // there was no breaker
			return after > 0
		}
		return after > 0 && after <= before
	},
	"policy.loopback": func(a, b *Config) bool {
		return within(b.Policy.Loopback, a.Policy.Loopback)
	},
	"policy.schemes": func(a, b *Config) bool {
		return within(b.Policy.Schemes, a.Policy.Schemes)
	},
	"policy.max_timeout_seconds": func(a, b *Config) bool {
		return b.Policy.MaxTimeout <= a.Policy.MaxTimeout
	},
	"policy.deadline": func(a, b *Config) bool { return b.Policy.Deadline <= a.Policy.Deadline },
	"keystore.idle":   func(a, b *Config) bool { return b.Keystore.Idle <= a.Keystore.Idle },
	"channel.deposit_cap": func(a, b *Config) bool {
		return b.Channel.DepositCap <= a.Channel.DepositCap
	},
	"env": func(_, b *Config) bool { return !b.Env },
}

var strictness = map[budget.Rule]int{budget.RuleAllow: 0, budget.RuleAsk: 1, budget.RuleRefuse: 2}

// noMore compares session caps. Where there is none, what was delegated is the cap (SPEC §5), and a
// file cannot tell whether that is more.
func noMore(a, b *money.Dollars) bool { return a != nil && b != nil && *b <= *a }

func within(some, all []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// otherwise are keys whose name in the file is not their field's.
var otherwise = map[string]string{"budget.host_day": "budget.hosts",
	"policy.max_timeout": "policy.max_timeout_seconds"}

// snake turns a field's name into a key: PerCall into per_call.
func snake(field string) string {
	var key strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 && !unicode.IsUpper(rune(field[i-1])) {
			key.WriteByte('_')
		}
		key.WriteRune(unicode.ToLower(r))
	}
	return key.String()
}

// show is a rule's value for people. What nothing means depends on the rule.
func (l leaf) show() string {
	if text := show(reflect.ValueOf(l.value)); text != "none" || unset[l.key] == "" {
		return text
	}
	return unset[l.key]
}

var unset = map[string]string{"policy.allow_hosts": "any", "assets": "those built in",
	"facilitators": "those built in"}

// show writes a value for a person; secrets stay hidden.
func show(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		if v.Len() == 0 {
			return "none"
		}
		return "[" + strings.Join(parts(v), ", ") + "]"
	case reflect.Pointer:
		if v.IsNil() {
			return "none"
		}
		return show(v.Elem())
	case reflect.String:
		if v.Len() == 0 {
			return "none"
		}
	}
	switch v := v.Interface().(type) {
	case money.Dollars:
		return v.Price()
	case time.Duration:
		return short(v)
	}
	return fmt.Sprint(v)
}

// parts are what a list or a map is made of, each in words: a map's in the order of its keys.
func parts(v reflect.Value) (list []string) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			list = append(list, part(v.Index(i)))
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			list = append(list, strings.TrimSpace(part(it.Key())+" "+part(it.Value())))
		}
		slices.Sort(list)
	}
	return list
}

// part writes a table as its keys and values, without what is not set. A text that could pass for
// more than one is quoted: the owner reads this before sealing what an agent may have written.
func part(v reflect.Value) string {
	if v.Kind() != reflect.Struct {
		text := show(v)
		if v.Kind() == reflect.String && strings.ContainsAny(text, " \t\r\n,[]\"") {
			text = strconv.Quote(text)
		}
		return text
	}
	var set []string
	for i := range v.NumField() {
		if field := v.Field(i); !field.IsZero() {
			set = append(set, snake(v.Type().Field(i).Name)+" "+part(field))
		}
	}
	return strings.Join(set, " ")
}
