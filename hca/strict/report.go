package strict

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// The environment of unmodified programs: rules (ParseSet), a profile, and the
// file that they append their findings to.
const (
	EnvRules   = "ROCEV2_STRICT"
	EnvProfile = "ROCEV2_PROFILE"
	EnvReport  = "ROCEV2_STRICT_REPORT"
)

// Line is what a process says in a report that several write: a finding of one
// of its devices. A later line of the same process, program, device and rule
// replaces an earlier one. One without a rule says that the device was opened.
type Line struct {
	PID     int    `json:"pid"`
	Command string `json:"command"` // name of the program
	Device  string `json:"device"`
	Finding
}

// mostLine is how long a line of a report is at most. A write of so much to a
// file that is open for appending is not torn.
const mostLine = 4096

// Append writes a line to a report, by one call of Write.
func (l Line) Append(w io.Writer) error {
	if most := mostLine / 8; len(l.Detail) > most {
		l.Detail = l.Detail[:most]
	}
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if len(b) >= mostLine {
		return fmt.Errorf("a line of a report has %d bytes; at most %d", len(b), mostLine)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// mostLines is how many findings a report is read of: those that write it may
// write anything.
const mostLines = 10000

// Report is what processes have written.
type Report struct {
	Devices int    // that were opened in strict mode, by all processes
	Lines   []Line // what was found
}

// ReadReport reads what processes have written about rules. What is no line of
// a report it leaves out.
func ReadReport(r io.Reader, rules Set) (Report, error) {
	type key struct {
		pid                   int
		command, device, rule string
	}
	var out Report
	at := map[key]int{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var l Line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue
		}
		rule, ok := ruleNamed(l.Rule)
		if l.Rule != "" && (!ok || !rules.Has(rule) || l.Count == 0) {
			continue
		}
		k := key{l.PID, l.Command, l.Device, l.Rule}
		i, known := at[k]
		switch {
		case known && i >= 0:
			out.Lines[i] = l
		case known || len(at) >= mostLines:
		case l.Rule == "":
			at[k] = -1
			out.Devices++
		default:
			at[k] = len(out.Lines)
			out.Lines = append(out.Lines, l)
		}
	}
	return out, lines.Err()
}
