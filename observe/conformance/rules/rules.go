// Package rules has the rules of a conformance test, and their scripts. A
// script is a few lines on a stage.Scene: it asks for a queue pair, sends
// packets, and says what must come. A new rule is one more entry in a table
// here, and a function.
package rules

import (
	"slices"

	"github.com/gosoftroce/rocev2/observe/conformance/stage"
)

// Severity is how much a rule binds.
type Severity uint8

const (
	Must   Severity = iota // the standard demands it
	Should                 // peers cope without, at a cost
)

// String returns "must" or "should".
func (s Severity) String() string {
	if s == Should {
		return "should"
	}
	return "must"
}

// MarshalText writes the word.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Rule is one that a peer keeps or breaks.
type Rule struct {
	ID       string   `json:"id"`
	Chapter  string   `json:"chapter"`
	Text     string   `json:"text"`
	Severity Severity `json:"severity"`
	Spec     string   `json:"spec"` // sections of the standard

	Bare   bool               `json:"bare"`  // a connection is enough, see stage.Listener
	Needs  []string           `json:"needs"` // capabilities of the target, see stage.Conn
	Script func(*stage.Scene) `json:"-"`
}

// All returns all rules. The chapters are those of docs/compliance.md.
func All() []Rule {
	return slices.Concat(
		chapter("Wire", wireRules()),
		chapter("Requests, responder side", sendRules(), memoryRules(), sequenceRules(), opcodeRules(), lengthRules(), keyRules(), refusalRules()),
		chapter("Requests, requester side", requesterRules(), responseRules(), retryRules()),
		chapter("Unreliable services", unreliableRules()),
	)
}

var needsAtomic = []string{"rc", "atomic"}

// chapter fills what the rules of a chapter have in common.
func chapter(name string, lists ...[]Rule) []Rule {
	list := slices.Concat(lists...)
	for i := range list {
		list[i].Chapter = name
		if len(list[i].Needs) == 0 {
			list[i].Needs = []string{"rc"}
		}
	}
	return list
}
