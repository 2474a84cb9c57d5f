package lab

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gosoftroce/rocev2/internal/closest"
)

// plainly returns an error of the reader of TOML in the words of scenarios.
func plainly(err error) error {
	text := err.Error()
	var at toml.ParseError
	if errors.As(err, &at) {
		text = at.Error()
	}
	text = strings.TrimPrefix(text, "toml: ")
	where, what, ok := strings.Cut(text, "incompatible types: ")
	if !ok {
		if where, _, ok = strings.Cut(text, "type mismatch for "); !ok {
			return errors.New(text)
		}
		if strings.HasSuffix(text, "found []map[string]any") {
			return fmt.Errorf("%sthere is only one: write one bracket, as in [network]", where)
		}
		return fmt.Errorf("%sit is a table: write its name in brackets, as in [network], or its settings in braces, as in red = { kmax = \"5KB\" }", where)
	}
	_, should, _ := strings.Cut(what, "destination has type ")
	want, ok := map[string]string{
		"boolean": "must be true or false, without quotes",
		"integer": "must be a whole number, without quotes",
		"float":   "must be a number, without quotes",
		"string":  "must be a text in quotes",
		"slice":   "is a list: write [[traffic]] with two brackets, and so [[failure]]",
	}[should]
	if !ok {
		return errors.New(text)
	}
	for key, is := range map[string]string{
		".between": "is a list of two nodes: between = [\"h0\", \"s3\"]",
		"\"loss":   "is a list of packets of flows, written [[loss]]; the share that cables lose at random is network.loss",
		"\"mark":   "is a list of packets of flows, written [[mark]]; from where on switches mark is network.red",
		".link":    "is a list: write [[network.link]] with two brackets",
		".class":   "is a list: write [[network.class]] with two brackets",
	} {
		if should == "slice" && strings.Contains(where, key+"\"") {
			want = is
		}
	}
	return fmt.Errorf("%sit %s", where, want)
}

// plainlyOf is plainly of a text that was changed: of a setting it has the name
// in place of a line, which is not that of the author's text.
func plainlyOf(err error) error {
	plain := plainly(err)
	if _, after, ok := strings.Cut(plain.Error(), "(last key \""); ok {
		if key, what, ok := strings.Cut(after, "\"): "); ok {
			return fmt.Errorf("%s: %s", key, what)
		}
	}
	return plain
}

// unknown returns an error if there is no such setting, in these letters, and
// says which ones there are in its place. The reader of TOML takes a setting in
// other letters, too, and of two spellings any.
func unknown(key toml.Key) error {
	of, name := reflect.TypeFor[Scenario](), "a scenario"
	for i, part := range key {
		f, ok := field(of, part)
		if !ok {
			var has []string
			for _, f := range settings(of) {
				has = append(has, written(f))
			}
			return fmt.Errorf("there is no setting %q: %s has %s%s", key, name, strings.Join(has, ", "), closest.Question(part, has))
		}
		of = f.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		name = "[" + strings.Join(key[:i+1], ".") + "]"
		if of.Kind() == reflect.Slice {
			of, name = of.Elem(), "["+name+"]"
		}
		if of.Kind() != reflect.Struct && i+1 < len(key) { // it has no settings in it
			return fmt.Errorf("there is no setting %q", key)
		}
	}
	return nil
}

// settings returns the fields that a file can have, with those of structs that
// are embedded.
func settings(of reflect.Type) (all []reflect.StructField) {
	for _, f := range reflect.VisibleFields(of) {
		if f.IsExported() && !f.Anonymous && f.Tag.Get("toml") != "-" {
			all = append(all, f)
		}
	}
	return all
}

// written returns the name of a setting in a file.
func written(f reflect.StructField) string {
	if tag := f.Tag.Get("toml"); tag != "" {
		return tag
	}
	return strings.ToLower(f.Name)
}

// field returns the field of a setting.
func field(of reflect.Type, name string) (reflect.StructField, bool) {
	for _, f := range settings(of) {
		if written(f) == name {
			return f, true
		}
	}
	return reflect.StructField{}, false
}
