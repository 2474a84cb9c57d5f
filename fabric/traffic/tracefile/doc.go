// Package tracefile reads lists of flows: CSV, and the files of two other
// simulators.
//
//   - CSV with a header: from, to, bytes, and if it has them start, op,
//     src_port and class
//   - flow.txt of the ns-3 simulator of HPCC (SIGCOMM 2019): a line with the
//     number of flows, then one for each: source, destination, priority group,
//     destination port, bytes, start in seconds
//   - connection matrices of htsim (.cm): "Nodes", "Connections" and "Triggers"
//     with a number, then a line for each connection, as in
//     "1->0 id 1 start 0 size 2000000", and one for each trigger
//
// The package is pure. It says which nodes a file names, not whether a network
// has them. An error names the lines of the first mistakes, all together. Times
// are picoseconds, sizes bytes.
package tracefile

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Flow is a line of a file.
type Flow struct {
	Line     int
	Src, Dst int64 // nodes, as the file numbers them
	Bytes    int64 // 0, of htsim: without an end
	Start    int64 // of a flow without a trigger

	Op      string // of CSV; "": it does not say
	Class   string // of CSV: a name or a DSCP; "": it does not say
	Group   int    // of ns-3: the priority group; else -1
	SrcPort uint16 // of CSV; 0: it does not say

	// What follows are triggers of htsim, by their index in File.Triggers;
	// -1: none.
	After    int // the flow begins when this one fires
	SendDone int // it is activated when the sender has all acknowledgements
	RecvDone int // it is activated when the receiver has all bytes
}

// Trigger starts flows after others.
type Trigger struct {
	Line  int
	ID    int64
	Kind  TriggerKind
	Count int   // activations that a Barrier waits for
	Flows []int // by their index in File.Flows, as the file has them
}

// TriggerKind says what an activation does.
type TriggerKind uint8

const (
	OneShot   TriggerKind = iota // the first one starts all flows
	MultiShot                    // each one starts the next flow
	Barrier                      // the last of Count starts all flows
)

// File is a list of flows.
type File struct {
	Nodes    int64 // that the file says there are; 0: it does not say
	Flows    []Flow
	Triggers []Trigger
}

// Limits bound what is taken of a file.
type Limits struct {
	Flows int   // in a file; 0: 2^20
	Bytes int64 // of a flow; 0: 2^40
	Start int64 // 0: as much as fits twice
}

func (l Limits) withDefaults() Limits {
	if l.Flows == 0 {
		l.Flows = 1 << 20
	}
	if l.Bytes == 0 {
		l.Bytes = 1 << 40
	}
	if l.Start == 0 {
		l.Start = math.MaxInt64 / 4
	}
	return l
}

// none is a flow that says nothing.
func none(line int) Flow {
	return Flow{Line: line, Group: -1, After: -1, SendDone: -1, RecvDone: -1}
}

// mostMistakes are told of a file.
const mostMistakes = 10

// mistakes are what is wrong with a file.
type mistakes struct {
	list []error
	more int
}

// add notes a mistake of a line.
func (m *mistakes) add(line int, format string, args ...any) {
	if len(m.list) == mostMistakes {
		m.more++
		return
	}
	err := fmt.Errorf(format, args...)
	if line > 0 {
		err = fmt.Errorf("line %d: %w", line, err)
	}
	m.list = append(m.list, err)
}

func (m *mistakes) err() error {
	if m.more > 0 {
		return errors.Join(append(m.list, fmt.Errorf("and %d more mistakes", m.more))...)
	}
	return errors.Join(m.list...)
}

// check notes what is wrong with a flow that was read.
func (m *mistakes) check(f *Flow, l Limits, endless bool) {
	least := int64(1)
	if endless {
		least = 0
	}
	switch {
	case f.Src == f.Dst:
		m.add(f.Line, "from host %d to itself", f.Src)
	case f.Bytes < least || f.Bytes > l.Bytes:
		m.add(f.Line, "bytes is %d: a flow has %d to %d", f.Bytes, least, l.Bytes)
	case f.Start < 0 || f.Start > l.Start:
		m.add(f.Line, "it starts at %d ps: at most %d", f.Start, l.Start)
	}
}

// whole reads a whole number that is not negative.
func whole(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%.40q is no whole number", text)
	}
	return n, nil
}

// decimal reads a number, times a power of ten, rounded to a whole one.
func decimal(text string, scale int64) (int64, error) {
	wrong := fmt.Errorf("%.40q is no number", text)
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if len(text) > 40 || len(strings.TrimLeft(exponent, "+-0")) > 2 || strings.Trim(mantissa, "+-.0123456789") != "" {
		return 0, wrong
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, wrong
	}
	r.Mul(r, new(big.Rat).SetInt64(scale))
	if r.Sign() < 0 || r.Cmp(new(big.Rat).SetInt64(math.MaxInt64/4)) > 0 {
		return 0, fmt.Errorf("%s is out of range", text)
	}
	// Half a unit more, and what comes after the point is left out.
	r.Add(r, big.NewRat(1, 2))
	return new(big.Int).Quo(r.Num(), r.Denom()).Int64(), nil
}
