package dissect

import (
	"fmt"
	"strings"
)

// Filter chooses packets.
type Filter struct {
	text  string
	match func(*Packet) bool
}

// Match reports whether a packet passes. A nil filter passes all.
func (f *Filter) Match(p *Packet) bool { return f == nil || f.match(p) }

// String returns the text that the filter was made from.
func (f *Filter) String() string {
	if f == nil {
		return ""
	}
	return f.text
}

// FilterError says what is wrong with a filter, and where.
type FilterError struct {
	Filter string
	Column int // from 1
	Reason string
}

// Error quotes the filter up to the place, and says what is wrong there.
func (e *FilterError) Error() string {
	return fmt.Sprintf("filter %q, column %d: %s", e.Filter, e.Column, e.Reason)
}

// FilterGrammar explains the language of filters.
const FilterGrammar = `A filter is made of conditions, with "and", "or", "not" and parentheses ("&&",
"||" and "!" mean the same). "not" binds first, "and" before "or".

  FLAG                   the packet has it
  FIELD VALUE            the field has this value; FIELD=VALUE is the same
  FIELD!=VALUE           it has another value, or the packet has no such field
  FIELD<VALUE            also <=, > and >=, of fields that are numbers

VALUE may be a list with commas, of which one must fit. Numbers are decimal, or
hexadecimal after 0x, and may be ranges: psn 100-200. A time is a number with
its unit, such as 20us or 1.5ms; without unit it is in seconds.`

// maxDepth bounds the nesting of a filter.
const maxDepth = 100

type filterToken struct {
	text   string
	column int
}

// tokens splits a filter. Operators and parentheses are tokens of their own.
func tokens(text string) (list []filterToken) {
	const operators = "()!=<>&|"
	for i := 0; i < len(text); {
		c := text[i]
		start := i
		switch {
		case c == ' ' || c == '\t' || c == '\n':
			i++
			continue
		case strings.HasPrefix(text[i:], "&&"), strings.HasPrefix(text[i:], "||"), strings.HasPrefix(text[i:], "=="),
			strings.HasPrefix(text[i:], "!="), strings.HasPrefix(text[i:], "<="), strings.HasPrefix(text[i:], ">="):
			i += 2
		case strings.IndexByte(operators, c) >= 0:
			i++
		default:
			for i < len(text) && strings.IndexByte(operators+" \t\n", text[i]) < 0 {
				i++
			}
		}
		list = append(list, filterToken{text[start:i], start + 1})
	}
	return list
}

// parser is a parser by recursive descent.
type parser struct {
	text  string
	rest  []filterToken
	depth int
}

// ParseFilter reads a filter. The error is a *FilterError.
func ParseFilter(text string) (*Filter, error) {
	p := &parser{text: text, rest: tokens(text)}
	if len(p.rest) == 0 {
		return nil, p.fail(1, "it is empty; for example: kind=read and host=192.0.2.7")
	}
	match, err := p.or()
	if err != nil {
		return nil, err
	}
	if t, ok := p.peek(); ok {
		if t.text == ")" {
			return nil, p.fail(t.column, "a parenthesis too many")
		}
		return nil, p.fail(t.column, "%q follows a condition: \"and\" or \"or\" must stand between two", t.text)
	}
	return &Filter{text, match}, nil
}

func (p *parser) fail(column int, format string, args ...any) error {
	return &FilterError{p.text, column, fmt.Sprintf(format, args...)}
}

func (p *parser) peek() (filterToken, bool) {
	if len(p.rest) == 0 {
		return filterToken{column: len(p.text) + 1}, false
	}
	return p.rest[0], true
}

// accept takes the next token if it is one of these.
func (p *parser) accept(texts ...string) bool {
	t, ok := p.peek()
	for _, want := range texts {
		if ok && t.text == want {
			p.rest = p.rest[1:]
			return true
		}
	}
	return false
}

type condition = func(*Packet) bool

func (p *parser) or() (condition, error) {
	left, err := p.and()
	for err == nil && p.accept("or", "||") {
		var right condition
		if right, err = p.and(); err == nil {
			a := left
			left = func(p *Packet) bool { return a(p) || right(p) }
		}
	}
	return left, err
}

func (p *parser) and() (condition, error) {
	left, err := p.not()
	for err == nil && p.accept("and", "&&") {
		var right condition
		if right, err = p.not(); err == nil {
			a := left
			left = func(p *Packet) bool { return a(p) && right(p) }
		}
	}
	return left, err
}

func (p *parser) not() (condition, error) {
	if p.depth++; p.depth > maxDepth {
		t, _ := p.peek()
		return nil, p.fail(t.column, "more than %d levels", maxDepth)
	}
	defer func() { p.depth-- }()
	if p.accept("not", "!") {
		inner, err := p.not()
		if err != nil {
			return nil, err
		}
		return func(p *Packet) bool { return !inner(p) }, nil
	}
	t, _ := p.peek()
	if !p.accept("(") {
		return p.test()
	}
	inner, err := p.or()
	if err != nil {
		return nil, err
	}
	if !p.accept(")") {
		end, _ := p.peek()
		return nil, p.fail(end.column, "the parenthesis of column %d is not closed", t.column)
	}
	return inner, nil
}

// reserved words and operators are neither fields nor values.
func reserved(text string) bool {
	switch text {
	case "and", "or", "not", "&&", "||", "!", "(", ")", "=", "==", "!=", "<", "<=", ">", ">=", "&", "|":
		return true
	}
	return false
}

// test reads a flag, or a field and its value.
func (p *parser) test() (condition, error) {
	t, ok := p.peek()
	if !ok {
		return nil, p.fail(t.column, "a condition is missing at the end")
	}
	if reserved(t.text) {
		return nil, p.fail(t.column, "a condition must stand here, not %q", t.text)
	}
	p.rest = p.rest[1:]
	name := strings.ToLower(t.text)
	field, isField := filterFields[name]
	op, value, err := p.operand(isField)
	switch {
	case err != nil:
		return nil, err
	case value.text != "":
		if !isField {
			return nil, p.fail(t.column, "there is no field %q%s", t.text, suggest(name, filterFields))
		}
		c, reason := field.test(op, value.text)
		if reason != "" {
			return nil, p.fail(value.column, "%s: %s", name, reason)
		}
		return c, nil
	}
	if flag, ok := filterFlags[name]; ok {
		return flag.test, nil
	}
	if isField {
		return nil, p.fail(t.column, "%s needs a value, such as %s %s", name, name, field.example)
	}
	return nil, p.fail(t.column, "there is no flag %q%s", t.text, suggest(name, filterFlags, filterFields))
}

// operand reads an operator and a value, or after a field a value alone.
func (p *parser) operand(isField bool) (op string, value filterToken, err error) {
	t, ok := p.peek()
	if !ok {
		return "", value, nil
	}
	switch t.text {
	case "=", "==", "!=", "<", "<=", ">", ">=":
		p.rest = p.rest[1:]
		op = t.text
		if op == "==" {
			op = "="
		}
		if t, ok = p.peek(); !ok || reserved(t.text) {
			return "", value, p.fail(t.column, "a value must follow %q", op)
		}
	default:
		if !isField || reserved(t.text) {
			return "", value, nil
		}
		op = "="
	}
	p.rest = p.rest[1:]
	return op, t, nil
}
