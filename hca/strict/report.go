package strict

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Line is what a process says in a report that several write: a finding of one
// of its devices. A later line of the same process, device and rule replaces an
// earlier one.
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

// ReadReport reads what processes have written. What is no line of a report it
// leaves out.
func ReadReport(r io.Reader) (list []Line, err error) {
	type key struct {
		pid          int
		device, rule string
	}
	at := map[key]int{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var l Line
		if json.Unmarshal(lines.Bytes(), &l) != nil || l.Count == 0 {
			continue
		}
		if _, ok := ruleNamed(l.Rule); !ok {
			continue
		}
		k := key{l.PID, l.Device, l.Rule}
		i, ok := at[k]
		switch {
		case ok:
			list[i] = l
		case len(list) < mostLines:
			at[k] = len(list)
			list = append(list, l)
		}
	}
	return list, lines.Err()
}
