package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/internal/pattern"
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
	after := to.Lines()
	for i, before := range from.Lines() {
		if reflect.DeepEqual(before.value, after[i].value) {
			continue
		}
		tighter, known := tightenings[before.Key]
		list = append(list, Change{Key: before.Key, From: before.Value, To: after[i].Value,
			Loosens: !known || !tighter(before.value, after[i].value) || from.opens(before.Key)})
	}
	return list
}

// opens reports whether any change of a key may let the agent do more under these rules, whatever it is. A
// list of payees lets those on it be paid that new_payee stops.
func (c *Config) opens(key string) bool {
	return key == "policy.payees" && len(c.Policy.Payees) == 0 && c.Policy.NewPayee != budget.RuleAllow
}

func Loosens(list []Change) bool {
	return slices.ContainsFunc(list, func(c Change) bool { return c.Loosens })
}

// Line is one rule for a person to read.
type Line struct {
	Key, Value string
	List       []string // the parts of a value that has several
	value      any
}

// Lines are all rules, in the order of the fields.
func (c *Config) Lines() (list []Line) {
	add := func(key string, field reflect.Value) {
		text := show(field)
		if text == "none" { // what nothing means depends on the rule
			text = cmp.Or(unset[key], text)
		}
		list = append(list, Line{Key: key, Value: text, List: parts(field), value: field.Interface()})
	}
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		switch {
		case name == "Raw" || name == "Warnings":
		case field.Kind() != reflect.Struct:
			add(snake(name), field)
		default:
			for j := range field.NumField() {
				key := snake(name) + "." + snake(field.Type().Field(j).Name)
				add(cmp.Or(otherwise[key], key), field.Field(j))
			}
		}
	}
	return list
}

// tightenings says for a key whether its change from one value to another lets the agent do nothing
// that it could not do before. Keys that are missing here (nodes, facilitators, assets, servers,
// where secrets come from, …) have no such direction: more content_quota lets it fill the disk, less
// lets it push out what others bought.
var tightenings = map[string]func(from, to any) bool{
	"budget.per_call": noMore[money.Dollars], "budget.day": noMore[money.Dollars],
	"budget.month": noMore[money.Dollars], "budget.approve_above": noMore[money.Dollars],
	"budget.rate": noMore[int], "policy.price_jump": noMore[float64],
	"policy.max_timeout_seconds": noMore[time.Duration], "policy.deadline": noMore[time.Duration],
	"policy.max_wait": noMore[time.Duration],
	"keystore.idle":   noMore[time.Duration], "channel.deposit_cap": noMore[money.Dollars],
	"policy.network_fee":     noMore[money.Dollars],
	"policy.channel_deposit": noMore[money.Dollars], "policy.channel_delay": noMore[time.Duration],
	"policy.new_payee": stricter, "policy.payee_change": stricter,
	"policy.sign_in":  stricter,
	"policy.loopback": within,
	"policy.schemes": func(from, to any) bool { // nil is all that there are
		return len(from.([]string)) == 0 || (len(to.([]string)) > 0 && within(from, to))
	},
	"policy.deny_hosts":         func(from, to any) bool { return within(to, from) },
	"env":                       func(_, to any) bool { return !to.(bool) },
	"policy.public_nodes":       func(_, to any) bool { return !to.(bool) },
	"policy.known_facilitators": func(_, to any) bool { return !to.(bool) },
	// how the log is written is nothing to the agent
	"log.format":    func(_, _ any) bool { return true },
	"traces.sample": noMore[float64], "traces.pass_on": func(_, to any) bool { return !to.(bool) },
	// Where there is no session cap, what was delegated is the cap, and a file cannot tell
	// whether that is more.
	"budget.session": func(from, to any) bool {
		before, after := from.(*money.Dollars), to.(*money.Dollars)
		return before != nil && after != nil && *after <= *before
	},
	"budget.hosts": func(from, to any) bool {
		after := to.(map[string]money.Dollars)
		for host, limit := range from.(map[string]money.Dollars) {
			if now, still := after[host]; !still || now > limit {
				return false
			}
		}
		return true
	},
	"policy.payees": func(from, to any) bool { // none is anybody
		return len(from.([]string)) == 0 || (len(to.([]string)) > 0 && within(from, to))
	},
	"policy.allow_hosts": func(from, to any) bool { return fewerHosts(from.([]string), to.([]string)) },
	"agents":             noneBut(Agent.isWithin),
	"budget.teams":       stricterTeams,
	"budget.agents":      stricterEach,
	"passkeys":           noneBut(func(now, was Passkey) bool { return now == was }),
	"subscriptions":      noneBut(Subscription.isWithin),
	"policy.max_failures": func(from, to any) bool {
		noBreaker := from.(int) == 0
		return to.(int) > 0 && (noBreaker || to.(int) <= from.(int))
	},
}

// noneBut reports of tables by name whether each that is there was there before, and is within what it was.
func noneBut[T any](isWithin func(now, was T) bool) func(from, to any) bool {
	return func(from, to any) bool {
		before := from.(map[string]T)
		for name, now := range to.(map[string]T) {
			was, known := before[name]
			if !known || !isWithin(now, was) {
				return false
			}
		}
		return true
	}
}

func noMore[T cmp.Ordered](from, to any) bool { return to.(T) <= from.(T) }

// within reports whether a list holds nothing that the earlier one did not.
func within(from, to any) bool {
	before := from.([]string)
	return !slices.ContainsFunc(to.([]string), func(s string) bool { return !slices.Contains(before, s) })
}

var strictness = map[budget.Rule]int{budget.RuleAllow: 0, budget.RuleAsk: 1, budget.RuleRefuse: 2}

func stricter(from, to any) bool {
	return strictness[to.(budget.Rule)] >= strictness[from.(budget.Rule)]
}

// otherwise are keys whose name in the file is not their field's.
var otherwise = map[string]string{"budget.host_day": "budget.hosts",
	"policy.max_timeout": "policy.max_timeout_seconds", "service.keys_url": "service.jwks_uri"}

// snake turns a field's name into a key: PerCall into per_call.
func snake(field string) string {
	return strings.ToLower(wordStart().ReplaceAllString(field, "${1}_$2"))
}

var wordStart = pattern.Lazy(`([^A-Z])([A-Z])`)

var unset = map[string]string{"policy.allow_hosts": "any", "policy.payees": "any", "policy.schemes": "all",
	"assets":       "those built in",
	"facilitators": "those built in"}

// show writes a value for a person; secrets stay hidden.
func show(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Map, reflect.Slice, reflect.String:
		if v.Len() == 0 {
			return "none"
		}
	case reflect.Pointer:
		if v.IsNil() {
			return "none"
		}
		return show(v.Elem())
	}
	if list := parts(v); list != nil {
		return "[" + strings.Join(list, ", ") + "]"
	}
	switch v := v.Interface().(type) {
	case money.Dollars:
		return v.Price()
	case money.Amount: // the rules name no other than coins for gas
		return v.Units(coinDecimals)
	case time.Duration:
		return short(v)
	case time.Time:
		return v.Format(time.RFC3339)
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
	_, isText := v.Interface().(fmt.Stringer) // of the tables none writes itself
	if v.Kind() != reflect.Struct || isText {
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
