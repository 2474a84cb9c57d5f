package lab

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/adapter"
)

// Packets are some of the packets of data of a flow, counted from 0 on in the
// order in which they are sent first. Of a READ they are those of the answers,
// of several queue pairs those of the first.
type Packets struct {
	Flow    int    // its number, in the order in which flows begin
	Packets string // numbers and ranges with blanks between them, as "3 17-20"
}

// told is what is to become of packets of a flow.
type told struct {
	lose, mark []int
	script     *adapter.Script // nil: the flow has not begun
}

// begin has the queue pair of a flow do what it is told.
func (t *told) begin(q *adapter.QP) {
	t.script = q.Script(t.lose, t.mark)
}

// unsent returns how many packets were never sent.
func unsent(all map[int]*told) (sum int) {
	for _, t := range all {
		if t.script == nil {
			sum += len(t.lose) + len(t.mark)
		} else {
			sum += t.script.Unsent()
		}
	}
	return sum
}

const mostTold = 1 << 20 // packets

// tell returns what is to become of packets, by the numbers of their flows.
func (s *Scenario) tell() (map[int]*told, error) {
	if len(s.Losses)+len(s.Marks) == 0 {
		return nil, nil
	}
	if s.Adapter.Shared {
		return nil, errors.New("adapter.shared has flows share connections: then there is no telling which packets are those of a flow in [[loss]] and [[mark]]")
	}
	all, left := map[int]*told{}, mostTold
	of := func(kind string, i int, p *Packets) ([]int, *told, error) {
		switch {
		case p.Flow < 0 || p.Flow >= mostFlows:
			return nil, nil, fmt.Errorf("%s %d: flow is %d: they are counted from 0 on, in the order in which they begin", kind, i+1, p.Flow)
		case strings.TrimSpace(p.Packets) == "":
			return nil, nil, fmt.Errorf("%s %d: packets says which: numbers and ranges with blanks between them, as %q", kind, i+1, "3 17-20")
		}
		list, err := packetsIn(p.Packets, left)
		if err != nil {
			return nil, nil, fmt.Errorf("%s %d: packets: %w", kind, i+1, err)
		}
		left -= len(list)
		t := all[p.Flow]
		if t == nil {
			t = new(told)
			all[p.Flow] = t
		}
		return list, t, nil
	}
	for i := range s.Losses {
		list, t, err := of("loss", i, &s.Losses[i])
		if err != nil {
			return nil, err
		}
		t.lose = append(t.lose, list...)
	}
	for i := range s.Marks {
		list, t, err := of("mark", i, &s.Marks[i])
		if err != nil {
			return nil, err
		}
		t.mark = append(t.mark, list...)
	}
	return all, nil
}

// packetsIn reads which packets a text names, not more than most.
func packetsIn(text string, most int) (list []int, err error) {
	for _, word := range strings.Fields(text) {
		first, last, ok := numberRange(word)
		if !ok || last >= adapter.MaxScripted {
			return nil, fmt.Errorf("%q: they are numbers from 0 to %d, or ranges, as 17-20", word, adapter.MaxScripted-1)
		}
		if last-first >= most-len(list) {
			return nil, fmt.Errorf("with what stands before it %q is more than %d packets, of all [[loss]] and [[mark]] together", word, mostTold)
		}
		for i := first; i <= last; i++ {
			list = append(list, i)
		}
	}
	return list, nil
}
