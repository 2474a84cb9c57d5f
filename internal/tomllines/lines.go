// Package tomllines says where in a TOML text its settings stand: the reader of
// TOML knows it only of what is no TOML.
package tomllines

import (
	"fmt"
	"strings"
)

// Find returns the lines, from 1 on, of all settings and tables of a TOML text
// that has been parsed without an error. A setting of the second [[region]] is
// "region.1.size", the table itself "region.1". Of what is in an inline table
// it has that table alone.
func Find(text string) map[string]int {
	found := map[string]int{}
	count := map[string]int{} // of the tables of an array
	table := ""
	depth, quote := 0, ""
	for i, line := range strings.Split(text, "\n") {
		if depth == 0 && quote == "" {
			name := strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(name, "[["):
				key, _, _ := strings.Cut(name[2:], "]]")
				key = plain(key)
				table = fmt.Sprintf("%s.%d", key, count[key])
				count[key]++
				found[table] = i + 1
				continue
			case strings.HasPrefix(name, "["):
				key, _, _ := strings.Cut(name[1:], "]")
				table = plain(key)
				found[table] = i + 1
				continue
			}
			if key, _, ok := strings.Cut(name, "="); ok && !strings.HasPrefix(name, "#") {
				found[join(table, plain(key))] = i + 1
			}
		}
		depth, quote = scan(line, depth, quote)
	}
	return found
}

// scan goes over a line, and returns how many brackets are open after it, and
// which quotes of a string of several lines.
func scan(line string, depth int, quote string) (int, string) {
	for i := 0; i < len(line); i++ {
		rest := line[i:]
		switch {
		case quote != "":
			switch {
			case strings.HasPrefix(rest, quote):
				i += len(quote) - 1
				quote = ""
			case rest[0] == '\\' && quote[0] == '"':
				i++
			}
		case strings.HasPrefix(rest, `"""`), strings.HasPrefix(rest, "'''"):
			quote = rest[:3]
			i += 2
		case rest[0] == '"' || rest[0] == '\'':
			quote = rest[:1]
		case rest[0] == '#':
			return depth, ""
		case rest[0] == '[' || rest[0] == '{':
			depth++
		case rest[0] == ']' || rest[0] == '}':
			depth--
		}
	}
	if len(quote) == 1 {
		quote = ""
	}
	return max(depth, 0), quote
}

// plain returns a key without blanks and quotes.
func plain(key string) string {
	parts := strings.Split(key, ".")
	for i, p := range parts {
		parts[i] = strings.Trim(strings.TrimSpace(p), `"'`)
	}
	return strings.Join(parts, ".")
}

func join(table, key string) string {
	if table == "" {
		return key
	}
	return table + "." + key
}
