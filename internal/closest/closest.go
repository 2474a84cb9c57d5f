// Package closest finds the name that was perhaps meant by a misspelled one.
package closest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Question returns a question for the name that is meant, such as " (do you
// mean perf?)", to be put after an error. It is empty if none is close.
func Question(word string, names []string) string {
	if name := To(word, names); name != "" {
		return fmt.Sprintf(" (do you mean %s?)", name)
	}
	return ""
}

// To returns the closest of names, or "". At most one letter in four may be
// wrong, left out, too many, or in the other order, or one in a shorter word. A
// name that begins with the word, of three letters or more, is close, too.
func To(word string, names []string) string {
	if len(word) < 2 || len(word) > mostLetters {
		return ""
	}
	best, least := "", max(1, (len(word)+1)/4)+1
	for _, n := range names {
		if d := distance(strings.ToLower(word), strings.ToLower(n)); d < least {
			best, least = n, d
		}
	}
	if best == "" && len(word) >= 3 {
		if i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, word) }); i >= 0 {
			best = names[i]
		}
	}
	return best
}

// Flag returns a question for the flag that is meant, of those with the names,
// by an unknown one: short is what came after one dash, perhaps with a value,
// or if that is empty, long what came after two.
func Flag(long, short string, names []string) string {
	word, _, _ := strings.Cut(short, "=")
	if name := To(cmp.Or(word, long), names); name != "" {
		return fmt.Sprintf(" (do you mean --%s?)", name)
	}
	return ""
}

// mostLetters is how long a word may be that is looked at.
const mostLetters = 64

// distance returns how many letters must be changed, added, taken out, or
// exchanged with the next one, to make b of a.
func distance(a, b string) int {
	if len(a) > mostLetters || len(b) > mostLetters {
		return mostLetters
	}
	var before, above [mostLetters + 1]int // the rows of the last two letters
	row := above
	for j := range len(b) + 1 {
		row[j] = j
	}
	for i := range len(a) {
		before, above = above, row
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(above[j]+cost, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
