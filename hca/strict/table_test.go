package strict

import (
	"fmt"
	"math"
	"strings"
)

// ruleLines are the rows of the table of rules.
func ruleLines() (lines []string) {
	for _, r := range Rules {
		name := "`" + r.Name + "`"
		if r.Optional {
			name += " (optional)"
		}
		if len(r.Except) > 0 {
			name += "; not " + strings.Join(r.Except, ", ")
		}
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s | %s |", name, r.Finds, r.Adapter, r.Here, r.Source))
	}
	return lines
}

// profileLines are the rows of the tables of profiles.
func profileLines() (lines []string) {
	number := func(n uint64) string {
		switch n {
		case 0:
			return "–"
		case math.MaxUint64:
			return "2^64-1"
		}
		return fmt.Sprint(n)
	}
	for _, p := range Profiles {
		l := p.Limits
		row := []string{"`" + p.Name + "`"}
		for _, n := range []int{l.WR, l.SGE, l.ReadSGE, l.Inline, l.RdAtomic, l.CQE, l.QP, l.MR} {
			row = append(row, number(uint64(n)))
		}
		row = append(row, number(l.MRSize), number(uint64(l.SRQWR)), number(uint64(l.SRQSGE)))
		lines = append(lines, "| "+strings.Join(row, " | ")+" |", fmt.Sprintf("| `%s` | %s | %s |", p.Name, p.What, p.Source))
	}
	return lines
}
