package lab

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gosoftroce/rocev2/internal/tomllines"
)

// Set returns the text of a scenario with one setting changed, or added: key is
// as in "network.routing" or "seed", and of the second [[traffic]]
// "traffic.1.load". A value that is no number, true, false, list or table of
// TOML is a text, and needs no quotes. Nothing else of the text changes. What a
// setting may be Parse knows.
func Set(text []byte, key, value string) ([]byte, error) {
	before := map[string]any{}
	if _, err := toml.NewDecoder(bytes.NewReader(text)).Decode(&before); err != nil {
		return nil, plainly(err)
	}
	v, written := literal(value)
	if err := put(before, strings.Split(key, "."), v); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	changed := edit(string(text), key, written, before)
	after := map[string]any{}
	if _, err := toml.NewDecoder(strings.NewReader(changed)).Decode(&after); err != nil || !reflect.DeepEqual(before, after) {
		return nil, fmt.Errorf("%s cannot be set in a scenario that is written so: write the setting in a line of its own, below the name of its table", key)
	}
	return []byte(changed), nil
}

// put sets a value in a tree of tables.
func put(table map[string]any, key []string, value any) error {
	if key[0] == "" {
		return fmt.Errorf("a setting has a name, and that of its table in front, as in network.routing")
	}
	if len(key) == 1 {
		table[key[0]] = value
		return nil
	}
	switch next := table[key[0]].(type) {
	case nil:
		next = map[string]any{}
		inner := next.(map[string]any)
		table[key[0]] = inner
		return put(inner, key[1:], value)
	case map[string]any:
		return put(next, key[1:], value)
	case []map[string]any:
		n, err := strconv.Atoi(key[1])
		if err != nil || n < 0 || n >= len(next) || len(key) < 3 {
			return fmt.Errorf("the scenario has %d tables [[%s]]: name one by its number, as in %s.0.bytes", len(next), key[0], key[0])
		}
		return put(next[n], key[2:], value)
	}
	return fmt.Errorf("%s is no table", key[0])
}

// literal returns what a value is in TOML, and how it is written there.
func literal(value string) (v any, text string) {
	var read struct{ V any }
	if _, err := toml.Decode("v = "+value, &read); err == nil {
		switch read.V.(type) {
		case int64, float64, bool, string, []any, map[string]any:
			return read.V, value
		}
	}
	return value, strconv.Quote(value)
}

// edit replaces the line of a setting, or adds one. all is what the text is to
// say.
func edit(text, key, value string, all map[string]any) string {
	found := tomllines.Find(text)
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	table, name := "", key
	if i := strings.LastIndexByte(key, '.'); i >= 0 {
		table, name = key[:i], key[i+1:]
	}
	set := name + " = " + value
	isHeader := func(table string) bool {
		at := found[table]
		return at > 0 && strings.HasPrefix(strings.TrimSpace(lines[at-1]), "[")
	}
	switch {
	case found[table] > 0 && !isHeader(table): // it is an inline table
		before, _, _ := strings.Cut(lines[found[table]-1], "=")
		lines[found[table]-1] = before + "= " + inline(all, strings.Split(table, "."))
	case found[key] > 0:
		own, _, _ := strings.Cut(lines[found[key]-1], "=") // it may be dotted
		lines[found[key]-1] = strings.TrimSpace(own) + " = " + value
	case table == "":
		lines = append([]string{set}, lines...)
	case found[table] > 0:
		at := found[table]
		lines = append(lines[:at], append([]string{set}, lines[at:]...)...)
	default:
		for below := table; ; { // the nearest table that is there
			i := strings.LastIndexByte(below, '.')
			if i < 0 {
				lines = append(lines, "["+table+"]", set)
				break
			}
			if below = below[:i]; isHeader(below) {
				at := found[below]
				lines = slices.Insert(lines, at, key[i+1:]+" = "+value)
				break
			}
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// inline writes a table in one line; nothing, if it is none.
func inline(all any, path []string) string {
	for _, name := range path {
		switch at := all.(type) {
		case map[string]any:
			all = at[name]
		case []map[string]any:
			n, err := strconv.Atoi(name)
			if err != nil || n < 0 || n >= len(at) {
				return ""
			}
			all = at[n]
		default:
			return ""
		}
	}
	switch v := all.(type) {
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name+" = "+inline(v[name], nil))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case []any:
		var parts []string
		for _, x := range v {
			parts = append(parts, inline(x, nil))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return strconv.Quote(v)
	case float64:
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	return fmt.Sprint(all)
}
