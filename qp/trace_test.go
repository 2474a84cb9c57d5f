package qp

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/trace"
	"github.com/gosoftroce/rocev2/rocev2"
)

// traced returns a pair whose first end tells what it decides.
func traced(t *testing.T, native bool, attr ib.Attr) (p *pair, events *[]trace.Event) {
	var scratch Scratch
	p = newPair(t, pairConfig{config: Config{MaxSendWR: 64, MaxRecvWR: 64, Scratch: &scratch}, attr: attr})
	if native {
		p.a.SetReorder(NewPool(0))
		p.b.SetReorder(NewPool(0))
	}
	events = new([]trace.Event)
	scratch.Trace = trace.NewHook(func(e *trace.Event) {
		if e.QPN == p.a.QPN() {
			*events = append(*events, *e)
		}
	})
	return p, events
}

// line returns an event as a line of a test.
func line(e trace.Event) string {
	switch e.Kind {
	case trace.Sent, trace.Lost:
		return fmt.Sprintf("%v %v %d+%d", e.Kind, e.Why, e.PSN, e.Packets)
	case trace.State:
		return fmt.Sprintf("%v %v-%v", e.Kind, e.Before, e.After)
	}
	return fmt.Sprintf("%v %v %d", e.Kind, e.Why, e.PSN)
}

func lines(events []trace.Event) (all []string) {
	for _, e := range events {
		if e.Kind != trace.Window {
			all = append(all, line(e))
		}
	}
	return all
}

// The events of a connection say what was lost, how that showed, what was sent
// again for it, and how the connection ended.
func TestTrace(t *testing.T) {
	t.Parallel()
	const psn = 100
	tests := []struct {
		name   string
		native bool
		lose   map[rocev2.PSN]int
		want   []string
	}{
		{name: "nothing lost", want: []string{
			"sent  100+1", "sent  101+1", "sent  102+1", "sent  103+1", "acked  104",
		}},
		{name: "foreign", lose: map[rocev2.PSN]int{101: 1}, want: []string{
			"sent  100+1", "sent  101+1", "sent  102+1", "sent  103+1", "acked  101", "lost go back 101+1",
			"sent rewound 101+1", "sent rewound 102+1", "sent rewound 103+1", "acked  104",
		}},
		{name: "native", native: true, lose: map[rocev2.PSN]int{101: 1}, want: []string{
			"sent  100+1", "sent  101+1", "sent  102+1", "sent  103+1", "acked  101", "lost gap 101+1",
			"sent repaired 101+1", "sent repaired 102+1", "sent repaired 103+1", "acked  104",
		}},
		{name: "tail", lose: map[rocev2.PSN]int{103: 1}, want: []string{
			"sent  100+1", "sent  101+1", "sent  102+1", "sent  103+1", "acked  103",
			"timer ACK timeout 103", "lost silence 103+1", "sent rewound 103+1", "acked  104",
		}},
		{name: "end", lose: map[rocev2.PSN]int{103: 8}, want: []string{
			"sent  100+1", "sent  101+1", "sent  102+1", "sent  103+1", "acked  103",
			"timer ACK timeout 103", "lost silence 103+1", "sent rewound 103+1",
			"timer ACK timeout 103", "state RTS-ERR",
		}},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, events := traced(t, c.native, ib.Attr{RetryCount: 1, SQPSN: psn, RQPSN: psn})
			p.a.sq.keep = true
			p.drop = func(from *testEnd, pkt *rocev2.Packet) bool {
				if from != p.a || c.lose[pkt.BTH.PSN] == 0 {
					return false
				}
				c.lose[pkt.BTH.PSN]--
				return true
			}
			for range 4 {
				must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 64), Remote: p.b.remote(0)}))
			}
			p.settle()
			if got := lines(*events); !slices.Equal(got, c.want) {
				t.Errorf("events\n%q\nwant\n%q", got, c.want)
			}
			bytes, last := 0, trace.Event{}
			for _, e := range *events {
				if e.Kind == trace.Sent {
					bytes += e.Bytes
				}
				last = e
			}
			if s := p.a.Stats(); uint64(bytes) != s.TxBytes {
				t.Errorf("%d bytes in the events, %d counted", bytes, s.TxBytes)
			}
			if last.Kind == trace.Acked && last.InFlight != 0 || last.Window == 0 {
				t.Errorf("at the end %+v", last)
			}
		})
	}
}

// Events cost no memory.
func TestTraceDoesNotAllocate(t *testing.T) {
	var scratch Scratch
	p := newPair(t, pairConfig{config: Config{MaxSendWR: 64, MaxRecvWR: 64, Scratch: &scratch}, noKeepCQ: true})
	n := 0
	scratch.Trace = trace.NewHook(func(*trace.Event) { n++ })
	wr := &ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 64), Remote: p.b.remote(0)}
	if got := testing.AllocsPerRun(100, func() {
		must(t, p.a.PostSend(wr))
		p.settle()
	}); got != 0 || n == 0 {
		t.Errorf("%v allocations, %d events", got, n)
	}
}
