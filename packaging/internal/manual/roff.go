package manual

import (
	"regexp"
	"strings"
	"time"
)

var (
	titleLine = regexp.MustCompile(`(?m)^(\.TH "[^"]*" "[^"]*") "[^"]*"(.*)$`)
	flagItem  = regexp.MustCompile(`(?m)^(?:\.PP\n)?(\\fB-.*)\n\t(.*)$`)
	table     = regexp.MustCompile(`(?s)\.TS\nallbox;\n[l \n]*\.\n(.*?)\n\.TE\n`)
	cellBlock = regexp.MustCompile(`T\{\n(.*)\nT\}`)
	spaced    = regexp.MustCompile(`\n\n+(\.|$)`)
	longWord  = regexp.MustCompile(`[^\s\\]{20,}`)
	font      = regexp.MustCompile(`\\f[A-Z]|\\&`)
)

// finish mends what the makers of pages write, so that man and mandoc show it
// without a warning: the date in full, lines without stretched spaces and
// hyphens, flags as a list, and tables that fit into a line.
func finish(page []byte, date time.Time) []byte {
	s := titleLine.ReplaceAllString(string(page), `$1 "`+date.Format(time.DateOnly)+"\"$2\n.nr HY 0\n.nh\n.ad l")
	s = flagItem.ReplaceAllString(s, ".TP\n$1\n$2")
	s = table.ReplaceAllStringFunc(s, fit)
	// Macros make space by themselves.
	return []byte(spaced.ReplaceAllString(s, "\n$1"))
}

// A column wraps if one of its cells has more characters than this.
const longCell = 24

// fit has the columns of a table wrap that have a long cell.
func fit(text string) string {
	body := cellBlock.ReplaceAllString(table.FindStringSubmatch(text)[1], "$1")
	var rows [][]string
	var wraps []bool
	for line := range strings.SplitSeq(body, "\n") {
		row := strings.Split(line, "\t")
		for i, cell := range row {
			if i == len(wraps) {
				wraps = append(wraps, false)
			}
			wraps[i] = wraps[i] || len(font.ReplaceAllString(cell, "")) > longCell
		}
		rows = append(rows, row)
	}
	var b strings.Builder
	b.WriteString(".TS\nallbox;\n")
	for i, wrap := range wraps {
		if i > 0 {
			b.WriteString(" ")
		}
		b.WriteString("l")
		if wrap {
			b.WriteString("x")
		}
	}
	b.WriteString(".\n")
	for _, row := range rows {
		for i, cell := range row {
			if wraps[i] && cell != "" {
				row[i] = "T{\n" + longWord.ReplaceAllStringFunc(cell, breakable) + "\nT}"
			}
		}
		b.WriteString(strings.Join(row, "\t") + "\n")
	}
	return b.String() + ".TE\n.sp\n"
}

// breakable lets a name be broken between its parts.
func breakable(word string) string {
	return strings.NewReplacer("_", `_\:`, "/", `/\:`, "&", `&\:`).Replace(word)
}
