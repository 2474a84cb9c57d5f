package strict

import (
	"fmt"
	"strings"
	"sync"

	"github.com/gosoftroce/rocev2/ib"
)

// Finding is what a program has done against a rule.
type Finding struct {
	Rule   string `json:"rule"`             // its name
	Count  uint64 `json:"count"`            // how many times
	QPN    uint32 `json:"qpn,omitempty"`    // of the first time: the queue pair
	WRID   uint64 `json:"wr_id,omitempty"`  // the ID of the request
	Key    uint32 `json:"key,omitempty"`    // the lkey or rkey
	Addr   uint64 `json:"addr,omitempty"`   // the address
	Length uint64 `json:"length,omitempty"` // bytes
	Detail string `json:"detail"`           // in words
}

// String says what was found.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.Rule, f.Detail)
	var where []string
	add := func(set bool, format string, v any) {
		if set {
			where = append(where, fmt.Sprintf(format, v))
		}
	}
	add(f.QPN != 0, "queue pair 0x%06x", f.QPN)
	add(f.WRID != 0, "wr_id %#x", f.WRID)
	add(f.Key != 0, "key 0x%08x", f.Key)
	add(f.Addr != 0, "address %#x", f.Addr)
	add(f.Length != 0, "%d bytes", f.Length)
	if len(where) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(where, ", "))
	}
	return b.String()
}

// Config says what a Checker looks for.
type Config struct {
	Rules   string // see ParseSet
	Profile string // name of a profile; "" is none. With one, Rules of "" is "on"

	// Found is called with the first finding of each rule. It may be called
	// with locks of the device held, and calls nothing there.
	Found func(Finding)
}

// Checker has what was found on a device. Its methods may be called from any
// goroutine, and with the device's locks held. A nil Checker has no rule on.
type Checker struct {
	rules  Set
	limits ib.Limits
	told   func(Finding)

	mu    sync.Mutex
	found [NumRules]Finding
}

// RulesOf returns the rules that a Config stands for.
func RulesOf(rules, profile string) (Set, error) {
	if rules == "" && profile != "" {
		rules = "on"
	}
	s, err := ParseSet(rules)
	if err != nil || profile == "" {
		return s, err
	}
	p, err := ProfileNamed(profile)
	if err != nil {
		return 0, err
	}
	return s.without(p), nil
}

// New returns a Checker, nil if no rule is on and there are no limits.
func New(c Config) (*Checker, error) {
	rules, err := RulesOf(c.Rules, c.Profile)
	if err != nil || rules == 0 && (c.Profile == "" || c.Rules == "off") {
		return nil, err
	}
	k := &Checker{rules: rules, told: c.Found}
	if c.Profile != "" {
		p, _ := ProfileNamed(c.Profile) // RulesOf has found it
		k.limits = p.Limits
	}
	return k, nil
}

// On reports whether a rule is on.
func (c *Checker) On(r Rule) bool { return c != nil && c.rules.Has(r) }

// Limits returns those of the profile. One of 0 is that of this software.
func (c *Checker) Limits() ib.Limits {
	if c == nil {
		return ib.Limits{}
	}
	return c.limits
}

// Found records a finding of a rule, if that is on. The first one is kept, and
// the others are counted. A Count of 0 is 1.
func (c *Checker) Found(r Rule, f Finding) {
	if !c.On(r) {
		return
	}
	f.Rule, f.Count = Rules[r].Name, max(f.Count, 1)
	c.mu.Lock()
	first := c.found[r].Count == 0
	if first {
		c.found[r] = f
	} else {
		c.found[r].Count += f.Count
	}
	c.mu.Unlock()
	if first && c.told != nil {
		c.told(f)
	}
}

// Findings returns what was found, by rule.
func (c *Checker) Findings() (list []Finding) {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.found {
		if f.Count > 0 {
			list = append(list, f)
		}
	}
	return list
}
