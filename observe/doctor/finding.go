package doctor

import "fmt"

// Status says how bad a finding is.
type Status uint8

// How bad a finding is.
const (
	OK         Status = iota // nothing to do
	Warning                  // it works, but not as well as it could, or not for all
	Problem                  // it does not work
	NotChecked               // it cannot be found out here
)

var statusNames = [...]string{OK: "ok", Warning: "warn", Problem: "problem", NotChecked: "not checked"}

// String returns "ok", "warn", "problem" or "not checked".
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// MarshalText writes the name.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is the result of one check of one thing.
type Finding struct {
	Check   string `json:"check"`             // what was looked at: "port", "mtu" …
	Subject string `json:"subject,omitempty"` // of what: an address, an interface, a setting
	Status  Status `json:"status"`
	Text    string `json:"text"`              // what was seen, and what it means
	Advice  string `json:"advice,omitempty"`  // what to do
	Command string `json:"command,omitempty"` // that does it, for a shell
}

// String writes the finding in one line.
func (f Finding) String() string {
	s := fmt.Sprintf("%v: %s", f.Status, f.Check)
	if f.Subject != "" {
		s += " " + f.Subject
	}
	s += ": " + f.Text
	if f.Advice != "" {
		s += "; " + f.Advice
	}
	if f.Command != "" {
		s += " (" + f.Command + ")"
	}
	return s
}

// Worst returns the worst status of findings: a problem, a warning, or OK.
func Worst(list []Finding) Status {
	worst := OK
	for _, f := range list {
		if f.Status != NotChecked {
			worst = max(worst, f.Status)
		}
	}
	return worst
}

// report collects findings.
type report struct {
	list  []Finding
	found func(Finding)
}

func (r *report) add(f Finding) {
	r.list = append(r.list, f)
	if r.found != nil {
		r.found(f)
	}
}

func (r *report) ok(check, subject, format string, args ...any) {
	r.add(Finding{Check: check, Subject: subject, Text: fmt.Sprintf(format, args...)})
}

func (r *report) notChecked(check, subject, format string, args ...any) {
	r.add(Finding{Check: check, Subject: subject, Status: NotChecked, Text: fmt.Sprintf(format, args...)})
}
