package losses

import (
	"fmt"
	"maps"
	"testing"
	"testing/fstest"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

func proc(inErrors, sndbuf int, backlog string) fstest.MapFS {
	return fstest.MapFS{
		"proc/net/snmp": {Data: fmt.Appendf(nil, "Tcp: A B\nTcp: 1 2\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n"+
			"Udp: 419770238 368118 %d 426107629 %d %d\nUdpLite: InErrors\nUdpLite: 7\n", inErrors, inErrors, sndbuf)},
		"proc/net/softnet_stat": {Data: []byte("00ffffff 00000000 0000\n00ffffff " + backlog + " 0000\n")},
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	before := proc(1000, 20, "0000000a")
	for _, c := range []struct {
		why    string
		after  fstest.MapFS
		errors map[string]uint64
		left   map[string]uint64
		count  uint64
	}{
		{"nothing lost", before, map[string]uint64{"retransmissions": 32, "ack timeouts": 1}, nil, 32},
		{"nothing wrong", before, nil, nil, 0},
		{"a full receive buffer", proc(1001, 20, "0000000a"), map[string]uint64{"retransmissions": 32}, map[string]uint64{"retransmissions": 32}, 0},
		{"a full send buffer", proc(1000, 21, "0000000a"), map[string]uint64{"retransmissions": 32}, map[string]uint64{"retransmissions": 32}, 0},
		{"a full queue of a processor", proc(1000, 20, "0000000b"), map[string]uint64{"retransmissions": 32}, map[string]uint64{"retransmissions": 32}, 0},
		{"no counters", fstest.MapFS{}, map[string]uint64{"retransmissions": 32}, map[string]uint64{"retransmissions": 32}, 0},
		{"something else was wrong", before, map[string]uint64{"retransmissions": 1, "bad ICRC": 1}, map[string]uint64{"retransmissions": 1, "bad ICRC": 1}, 0},
	} {
		s := cell.Sample{Errors: maps.Clone(c.errors)}
		begin(before).judge(&s, c.after)
		if !maps.Equal(s.Errors, c.left) || s.Count[Needless] != c.count {
			t.Errorf("%s: errors %v, counts %v, want %v, %d", c.why, s.Errors, s.Count, c.left, c.count)
		}
	}
}

// What a network loses is not in the counters of this machine.
func TestOnlyLoopbackIsJudged(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{{"127.0.0.1", "192.0.2.1"}, {"", ""}, {"10.0.0.1", "127.0.0.1"}} {
		if w := Begin(c[0], c[1]); w.ok {
			t.Errorf("%q is watched", c)
		}
	}
	s := cell.Sample{Errors: map[string]uint64{"retransmissions": 1}}
	Watch{}.judge(&s, proc(0, 0, "0"))
	if s.OK() {
		t.Error("without a beginning, an error is none")
	}
}
