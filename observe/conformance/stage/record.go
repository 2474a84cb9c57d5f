package stage

import "fmt"

// Verdict is what came of a rule.
type Verdict uint8

const (
	NotTested Verdict = iota
	Pass
	Fail
	Known // the peer breaks the rule in a way that is known of its kind
)

var verdictNames = [...]string{NotTested: "not tested", Pass: "pass", Fail: "fail", Known: "deviation known"}

// String returns the word that reports have.
func (v Verdict) String() string { return verdictNames[v] }

// MarshalText writes the word.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Record is what came of a script.
type Record struct {
	Verdict  Verdict  `json:"verdict"`
	Why      string   `json:"why,omitempty"`      // it was not tested, or what is known
	Sent     string   `json:"sent,omitempty"`     // the last that was sent before it went wrong
	Expected string   `json:"expected,omitempty"` // what the rule asks for
	Came     string   `json:"came,omitempty"`     // instead
	Steps    []string `json:"steps,omitempty"`    // all that was sent, came and was asked for
}

func (r *Record) step(format string, args ...any) {
	const most = 300 // of a peer that floods no more is kept
	switch {
	case len(r.Steps) < most:
		r.Steps = append(r.Steps, fmt.Sprintf(format, args...))
	case len(r.Steps) == most:
		r.Steps = append(r.Steps, "… (more is not kept)")
	}
}
