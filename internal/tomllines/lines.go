// Package tomllines says where in a TOML text its settings stand: the reader of
// TOML knows it only of what is no TOML.
package tomllines

import (
	"fmt"
	"strings"
)

// Find returns the lines, from 1 on, of all settings and tables of a TOML text
// that has been parsed without an error. A setting of the second [[region]] is
// "region.1.size", the table itself "region.1", and [region.limit] below it
// "region.1.limit". Of an array of inline tables it has the array alone.
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
				table = within(plain(key), count)
				found[table] = i + 1
				continue
			}
			if key, value, ok := strings.Cut(name, "="); ok && !strings.HasPrefix(name, "#") {
				at := join(table, plain(key))
				found[at] = i + 1
				if value = strings.TrimSpace(value); strings.HasPrefix(value, "{") {
					for _, key := range inline(value) {
						found[join(at, plain(key))] = i + 1
					}
				}
			}
		}
		depth, quote = scan(line, depth, quote)
	}
	return found
}

// within returns the path of a table: below the last table of an array, if it
// is one of an array's.
func within(key string, count map[string]int) string {
	for i := range key {
		if key[i] == '.' && count[key[:i]] > 0 {
			return fmt.Sprintf("%s.%d%s", key[:i], count[key[:i]]-1, key[i:])
		}
	}
	return key
}

// inline returns the keys of an inline table, but not those of tables in it.
func inline(text string) (keys []string) {
	depth, quote, from := 0, byte(0), 0 // where a key begins; 0: a value is read
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0:
			if c == '\\' && quote == '"' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '{' || c == '[':
			if depth++; depth == 1 {
				from = i + 1
			}
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return keys
			}
		case c == ',' && depth == 1:
			from = i + 1
		case c == '=' && depth == 1 && from > 0:
			keys = append(keys, text[from:i])
			from = 0
		}
	}
	return keys
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
