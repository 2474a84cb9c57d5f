package perftest

import (
	"fmt"
	"strings"
)

// Verb is the operation that a test measures.
type Verb uint8

// Operations.
const (
	Send Verb = iota
	Write
	Read
	Atomic
)

// Kind is what a test measures.
type Kind uint8

// Kinds of tests.
const (
	Bandwidth Kind = iota
	Latency
)

// Test is one of the eight tests.
type Test struct {
	Verb Verb
	Kind Kind
}

// Tests lists all of them.
var Tests = []Test{
	{Send, Bandwidth}, {Write, Bandwidth}, {Read, Bandwidth}, {Atomic, Bandwidth},
	{Send, Latency}, {Write, Latency}, {Read, Latency}, {Atomic, Latency},
}

var verbNames = [...]string{Send: "send", Write: "write", Read: "read", Atomic: "atomic"}

func (v Verb) String() string {
	if int(v) < len(verbNames) {
		return verbNames[v]
	}
	return fmt.Sprintf("Verb(%d)", uint8(v))
}

func (k Kind) String() string {
	if k == Latency {
		return "lat"
	}
	return "bw"
}

// String returns the name of the test: "write_bw".
func (t Test) String() string { return t.Verb.String() + "_" + t.Kind.String() }

// Tool returns the name of the program of the perftest package that runs the
// test.
func (t Test) Tool() string { return "ib_" + t.String() }

// ParseTest finds a test by its name, with or without "ib_".
func ParseTest(name string) (Test, error) {
	for _, t := range Tests {
		if strings.TrimPrefix(name, "ib_") == t.String() {
			return t, nil
		}
	}
	names := make([]string, len(Tests))
	for i, t := range Tests {
		names[i] = t.String()
	}
	return Test{}, fmt.Errorf("no test %q; there are %s", name, strings.Join(names, ", "))
}

// DefaultInline is the size up to which the original puts messages into the
// work request, for which Config.Inline has no default.
func (t Test) DefaultInline() int {
	if t.Kind == Latency && !t.hasReadDepth() {
		return 220
	}
	return 0
}

// clientOnly reports whether the server just answers.
func (t Test) clientOnly() bool {
	return t.Verb == Read || t.Verb == Atomic || t == Test{Write, Bandwidth}
}

// hasReadDepth reports whether the operation has a limit of its own on what may
// be outstanding.
func (t Test) hasReadDepth() bool { return t.Verb == Read || t.Verb == Atomic }
