package conformance

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gosoftroce/rocev2/observe/conformance/rules"
	"github.com/gosoftroce/rocev2/observe/conformance/stage"
)

// Rule is one that a peer keeps or breaks.
type Rule = rules.Rule

// Target is what a target says of itself.
type Target = stage.Target

// Verdict is what came of a rule.
type Verdict = stage.Verdict

// The verdicts.
const (
	NotTested = stage.NotTested
	Pass      = stage.Pass
	Fail      = stage.Fail
	Known     = stage.Known // the peer breaks the rule in a way that is known of its kind
)

// Select returns the rules that one of the patterns names, by chapter. A
// pattern is an ID, with * and ? as in file names. Without patterns all are
// chosen. The error names a pattern that fits no rule.
func Select(patterns []string) ([]Rule, error) {
	all := rules.All()
	if len(patterns) == 0 {
		return all, nil
	}
	chosen := make([]bool, len(all))
	for _, p := range patterns {
		any := false
		for i, r := range all {
			fits, err := path.Match(p, r.ID)
			if err != nil {
				return nil, fmt.Errorf("the pattern %q: %w", p, err)
			}
			if fits {
				any, chosen[i] = true, true
			}
		}
		if !any {
			return nil, fmt.Errorf("no rule fits %q: --list shows them all", p)
		}
	}
	var list []Rule
	for i, r := range all {
		if chosen[i] {
			list = append(list, r)
		}
	}
	return list, nil
}

// Result is what came of one rule.
type Result struct {
	Rule
	stage.Record
	Before  []string `json:"failed_before,omitempty"` // what failed at the tries before, see Config.Again
	Capture string   `json:"capture,omitempty"`       // file beside the report

	capture []byte // pcapng
}

// missing says what a target lacks for the rule, or "".
func (r *Result) missing(t Target) string {
	if t.Bare && !r.Bare {
		return "a connection alone does not show this: it takes a target"
	}
	for _, n := range r.Needs {
		if !slices.Contains(t.Services, n) {
			return "the target does not offer " + n
		}
	}
	return ""
}

// fileName makes a name of a file of a rule.
func (r *Result) fileName(ext string) string { return strings.ReplaceAll(r.ID, "/", "-") + ext }
