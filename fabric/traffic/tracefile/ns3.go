package tracefile

import (
	"fmt"
	"strings"
)

const picoseconds = 1_000_000_000_000 // of a second

// NS3 reads flow.txt as the ns-3 simulator of HPCC does (third.cc of
// alibaba-edu/High-Precision-Congestion-Control): the number of flows, and a
// line for each. What follows that number of lines is left out, as there.
func NS3(text string, l Limits) (*File, error) {
	l = l.withDefaults()
	f, m := &File{}, &mistakes{}
	count, number := int64(-1), 0
	for line := range strings.Lines(text) {
		number++
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case count < 0:
			var err error
			if count, err = whole(fields[0]); err != nil || len(fields) > 1 || count < 1 || count > int64(l.Flows) {
				return nil, fmt.Errorf("line %d: a list begins with the number of flows, 1 to %d, not with %.40q", number, l.Flows, strings.TrimSpace(line))
			}
		case len(fields) != 6:
			m.add(number, "a flow has 6 numbers: source, destination, priority group, port, bytes, start in seconds; here are %d", len(fields))
		default:
			flow := none(number)
			if flow.numbers(fields, m) {
				m.check(&flow, l, false)
			}
			f.Flows = append(f.Flows, flow)
		}
		if int64(len(f.Flows)) == count {
			return f, m.err()
		}
	}
	switch {
	case count < 0:
		m.add(0, "there is no flow in it")
	case len(m.list) == 0:
		m.add(number, "the list ends after %d flows of %d", len(f.Flows), count)
	}
	return f, m.err()
}

// numbers takes those of a line, and reports whether all are such.
func (f *Flow) numbers(fields []string, m *mistakes) bool {
	var group, port int64
	for i, n := range []struct {
		name string
		to   *int64
		most int64
	}{
		{"source", &f.Src, 1<<31 - 1}, {"destination", &f.Dst, 1<<31 - 1}, {"priority group", &group, 7},
		{"port", &port, 1<<16 - 1}, {"bytes", &f.Bytes, 1<<63 - 1}, {"start", &f.Start, 1<<63 - 1},
	} {
		var err error
		if i == 5 {
			*n.to, err = decimal(fields[i], picoseconds)
		} else {
			*n.to, err = whole(fields[i])
		}
		if err == nil && *n.to > n.most {
			err = fmt.Errorf("%s is above %d", fields[i], n.most)
		}
		if err != nil {
			m.add(f.Line, "%s: %w", n.name, err)
			return false
		}
	}
	f.Group = int(group)
	return true
}
