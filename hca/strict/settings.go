package strict

import (
	"fmt"
	"slices"
	"strings"
)

// Set is a set of rules.
type Set uint32

// Has reports whether a rule is in the set.
func (s Set) Has(r Rule) bool { return s>>r&1 != 0 }

// normal returns the rules that are not optional; all returns all of them.
func normal() (s Set) {
	for r := range NumRules {
		if !Rules[r].Optional {
			s |= 1 << r
		}
	}
	return s
}

func all() Set { return 1<<NumRules - 1 }

// Names returns the names of all rules, in the order of the table.
func Names() (list []string) {
	for r := range NumRules {
		list = append(list, Rules[r].Name)
	}
	return list
}

// ParseSet reads which rules are on: words with commas between them. "on" is
// all rules that are not optional, "all" is all of them, a name is that rule,
// and a name after "-" takes it out. Where the first word is such a one it
// takes it out of "on". "" and "off" are none.
func ParseSet(text string) (Set, error) {
	var s Set
	for i, word := range strings.Split(text, ",") {
		word = strings.TrimSpace(word)
		name, out := strings.CutPrefix(word, "-")
		if out && i == 0 {
			s = normal()
		}
		switch word {
		case "", "off":
			if i > 0 || strings.Contains(text, ",") {
				return 0, fmt.Errorf("strict rules %q: %q stands alone", text, word)
			}
			return 0, nil
		case "on":
			s |= normal()
			continue
		case "all":
			s |= all()
			continue
		}
		r, ok := ruleNamed(name)
		switch {
		case !ok:
			return 0, fmt.Errorf("strict rules: %q is none; there are on, all, off, and %s", name, strings.Join(Names(), ", "))
		case out:
			s &^= 1 << r
		default:
			s |= 1 << r
		}
	}
	return s, nil
}

// without returns the rules of s that adapters of a profile have.
func (s Set) without(p *Profile) Set {
	for r := range NumRules {
		if slices.Contains(Rules[r].Except, p.Name) {
			s &^= 1 << r
		}
	}
	return s
}
