package verbs

import (
	"fmt"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/hca/strict"
)

// Finding is what a program has done that adapters refuse or punish: the first
// time of it, and how often. See Config.Strict.
type Finding struct {
	Rule   string `json:"rule"`             // that was broken
	Count  uint64 `json:"count"`            // how many times
	QPN    uint32 `json:"qpn,omitempty"`    // of the first time: the queue pair of this side; 0: not known
	WRID   uint64 `json:"wr_id,omitempty"`  // SendWR.ID or RecvWR.ID
	Key    uint32 `json:"key,omitempty"`    // the lkey or rkey that was used; 0: none
	Addr   uint64 `json:"addr,omitempty"`   // the wire address
	Length uint64 `json:"length,omitempty"` // bytes
	Detail string `json:"detail"`           // in words
}

// String says what was found, in a line.
func (f Finding) String() string { return strict.Finding(f).String() }

// StrictRule describes a rule of strict mode.
type StrictRule struct {
	Name     string // for Config.Strict
	Finds    string // what a program does wrong
	Adapter  string // what an adapter does then
	Here     string // what a device in strict mode does
	Source   string // where that is said
	Optional bool   // it is off unless it is named
}

// StrictRules returns the rules of strict mode.
func StrictRules() (list []StrictRule) {
	for _, r := range strict.Rules {
		list = append(list, StrictRule{r.Name, r.Finds, r.Adapter, r.Here, r.Source, r.Optional})
	}
	return list
}

// CheckStrict says what is wrong with a Config.Strict and a Config.Profile.
func CheckStrict(rules, profile string) error {
	_, err := strict.New(strict.Config{Rules: rules, Profile: profile})
	return err
}

// strict sets what the device checks.
func (c *Config) strict(h *hca.Config) (err error) {
	config := strict.Config{Rules: c.Strict, Profile: c.Profile}
	if f := c.Found; f != nil {
		config.Found = func(found strict.Finding) { f(Finding(found)) }
	}
	if h.Strict, err = strict.New(config); err != nil {
		return fmt.Errorf("fields Strict and Profile: %w", err)
	}
	return nil
}

// Findings returns what was found in strict mode, by rule. It is empty where
// nothing was, and without Config.Strict.
func (d *Device) Findings() (list []Finding) {
	for _, f := range d.core.Strict().Findings() {
		list = append(list, Finding(f))
	}
	return list
}
