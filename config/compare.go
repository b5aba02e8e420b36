package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"x402-wallet/money"
)

// Change is one rule that differs between two versions of config.toml.
type Change struct {
	Key     string `json:"key"` // "budget.day"
	From    string `json:"from"`
	To      string `json:"to"`
	Loosens bool   `json:"loosens"` // it may let the agent do more; false only where it provably does not
}

// Compare lists what differs, in the order of the file. Every key is compared, so a key this function knows nothing of is a
// change that loosens.
func Compare(from, to *Config) (list []Change) {
	after := leaves(to)
	for i, before := range leaves(from) {
		if reflect.DeepEqual(before.value, after[i].value) {
			continue
		}
		tighter, known := tightenings[before.key]
		list = append(list, Change{Key: before.key, From: before.show(), To: after[i].show(), Loosens: !known || !tighter(from, to)})
	}
	return list
}

// Loosens reports whether any of the changes does.
func Loosens(list []Change) bool {
	return slices.ContainsFunc(list, func(c Change) bool { return c.Loosens })
}

// Lines are all rules for a person to read: key and value.
func (c *Config) Lines() (list [][2]string) {
	for _, l := range leaves(c) {
		list = append(list, [2]string{l.key, l.show()})
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
			list = append(list, leaf{snake(name), field.Interface()})
		default:
			for j := range field.NumField() {
				key := snake(name) + "." + snake(field.Type().Field(j).Name)
				list = append(list, leaf{cmp.Or(otherwise[key], key), field.Field(j).Interface()})
			}
		}
	}
	return list
}

// tightenings says for a key whether its change lets the agent do nothing that it could not do before. Keys that are missing
// here (nodes, facilitators, assets, servers, where secrets come from, …) have no such direction.
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
		return len(a.Policy.AllowHosts) == 0 || len(b.Policy.AllowHosts) > 0 && within(b.Policy.AllowHosts, a.Policy.AllowHosts)
	},
	"policy.deny_hosts":   func(a, b *Config) bool { return within(a.Policy.DenyHosts, b.Policy.DenyHosts) },
	"policy.new_payee":    func(a, b *Config) bool { return strictness[b.Policy.NewPayee] >= strictness[a.Policy.NewPayee] },
	"policy.payee_change": func(a, b *Config) bool { return strictness[b.Policy.PayeeChange] >= strictness[a.Policy.PayeeChange] },
	"policy.price_jump":   func(a, b *Config) bool { return b.Policy.PriceJump <= a.Policy.PriceJump },
	"policy.max_failures": func(a, b *Config) bool {
		return b.Policy.MaxFailures > 0 && (a.Policy.MaxFailures == 0 || b.Policy.MaxFailures <= a.Policy.MaxFailures)
	},
	"policy.loopback":            func(a, b *Config) bool { return within(b.Policy.Loopback, a.Policy.Loopback) },
	"policy.schemes":             func(a, b *Config) bool { return within(b.Policy.Schemes, a.Policy.Schemes) },
	"policy.max_timeout_seconds": func(a, b *Config) bool { return b.Policy.MaxTimeout <= a.Policy.MaxTimeout },
	"policy.deadline":            func(a, b *Config) bool { return b.Policy.Deadline <= a.Policy.Deadline },
	"keystore.idle":              func(a, b *Config) bool { return b.Keystore.Idle <= a.Keystore.Idle },
	"channel.deposit_cap":        func(a, b *Config) bool { return b.Channel.DepositCap <= a.Channel.DepositCap },
	"env":                        func(_, b *Config) bool { return !b.Env },
}

var strictness = map[Rule]int{Allow: 0, Ask: 1, Refuse: 2}

// noMore compares session caps. Where there is none, what was delegated is the cap (SPEC §5), and a file cannot tell whether
// that is more.
func noMore(a, b *money.Dollars) bool { return a != nil && b != nil && *b <= *a }

func within(some, all []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// otherwise are keys whose name in the file is not their field's.
var otherwise = map[string]string{"budget.host_day": "budget.hosts", "policy.max_timeout": "policy.max_timeout_seconds"}

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

// show writes a value for a person; secrets stay hidden.
// show is a rule's value for people. What nothing means depends on the rule.
func (l leaf) show() string {
	if text := show(l.value); text != "none" || unset[l.key] == "" {
		return text
	}
	return unset[l.key]
}

var unset = map[string]string{"policy.allow_hosts": "any", "assets": "those built in", "facilitators": "those built in"}

func show(v any) string {
	if r := reflect.ValueOf(v); (r.Kind() == reflect.Map || r.Kind() == reflect.Slice || r.Kind() == reflect.String) && r.Len() == 0 {
		return "none"
	}
	switch v := v.(type) {
	case money.Dollars:
		return v.Price()
	case *money.Dollars:
		if v == nil {
			return "none"
		}
		return v.Price()
	case time.Duration:
		return short(v)
	case map[string]money.Dollars:
		var hosts []string
		for _, host := range slices.Sorted(maps.Keys(v)) {
			hosts = append(hosts, host+" "+v[host].Price())
		}
		return "[" + strings.Join(hosts, ", ") + "]"
	case map[string]Network:
		var nodes []string
		for _, id := range slices.Sorted(maps.Keys(v)) {
			nodes = append(nodes, strings.TrimSpace(id+" "+v[id].RPC+" "+v[id].TokenAccount))
		}
		return "[" + strings.Join(nodes, ", ") + "]"
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	case Rule, string, bool, int, float64, Secret:
		return fmt.Sprint(v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%+v", v)
	}
	return string(text)
}
