package qptest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/testshort"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// linuxReads has the second node refuse what Linux (rxe, 6.12) refuses: a READ
// that is repeated from its first PSN, with remote access error, if the last
// request with a RETH was empty.
type linuxReads struct {
	*flood
	epsn  rocev2.PSN
	empty bool // the last request with a RETH was
	reads map[rocev2.PSN]bool
}

// arrived looks at a request before the queue pair does.
func (l *linuxReads) arrived(q *simQP, p *rocev2.Packet) {
	info, _ := p.BTH.Opcode.Info()
	if q != l.endpoint[1] || info.Role != rocev2.RoleRequest {
		return
	}
	psn, read, reth := p.BTH.PSN, p.BTH.Opcode == rocev2.RCReadRequest, info.Headers.Has(rocev2.HasRETH)
	switch {
	case psn == l.epsn:
		l.epsn = psn.Next()
		if reth {
			l.empty = p.RETH.Length == 0
		}
		if read {
			l.reads[psn] = true
			l.epsn = psn.Add(max(1, (int(p.RETH.Length)+q.Attr().PathMTU.Bytes()-1)/q.Attr().PathMTU.Bytes()))
		}
	case read && l.reads[psn] && l.empty:
		nak := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCAcknowledge, PSN: psn, DestQPN: l.endpoint[0].qpn, PKey: p.BTH.PKey}}
		nak.AETH.Syndrome = rocev2.NAKRemoteAccess
		l.endpoint[0].HandlePacket(l.now, arrival(l.nodes[1].addr, l.nodes[0].addr, &nak, false))
		l.touch(l.endpoint[0])
	}
}

// TestLinuxReads: connections to a peer that does not repeat every READ last,
// READs with an empty WRITE WITH IMMEDIATE after each of them. The peer answers
// late now and then, and the path loses nothing, or some packets.
func TestLinuxReads(t *testing.T) {
	t.Parallel()
	for seed := range testshort.Rounds[uint64](40) {
		rng := rand.New(rand.NewPCG(seed, 0x4ead))
		p := floodParams{probe: time.Millisecond, size: 1 << (10 + rng.IntN(8)), delay: clock.Time(1000 + rng.IntN(100_000))}
		if seed%2 == 1 {
			p.loss = 0.002
		}
		l := newLinuxReads(t, p)
		left, done := 400, 0
		l.hooks.touched = func(q *simQP) {
			l.nodes[1].lag = 0
			if rng.IntN(50) == 0 {
				l.nodes[1].lag = clock.Time(12e6)
			}
			for _, wc := range append(q.sendCQ.drain(), q.recvCQ.drain()...) {
				if wc.Status != ib.StatusSuccess {
					t.Fatalf("seed %d: %v after %d requests, the last RETH empty: %v", seed, wc.Status, done, l.empty)
				}
				if q == l.endpoint[0] {
					done++
				} else if err := l.recv(); err != nil {
					t.Fatal(err)
				}
			}
			for q == l.endpoint[0] && left > 0 && left+done > 400-8 {
				left -= 2
				l.post(t, ib.OpRead, p.size)
				l.post(t, ib.OpWriteImm, 0)
			}
		}
		for range 4 * goodputDepth {
			if err := l.recv(); err != nil {
				t.Fatal(err)
			}
		}
		l.touch(l.endpoint[0])
		for done < 400 && l.now < 60e9 && l.step(nil) {
		}
		if done < 400 {
			t.Errorf("seed %d: stands still after %d requests", seed, done)
		}
		if s := l.endpoint[0].Stats(); p.loss == 0 && s.Retransmits > 0 {
			t.Errorf("seed %d: %d packets were sent again, and none was lost", seed, s.Retransmits)
		}
	}
}

func newLinuxReads(t *testing.T, p floodParams) *linuxReads {
	f, err := newFlood(ib.OpRead, rocev2.MTU1024, p)
	if err != nil {
		t.Fatal(err)
	}
	l := &linuxReads{flood: f, reads: map[rocev2.PSN]bool{}}
	l.hooks.arrived = l.arrived
	return l
}

func (l *linuxReads) post(t *testing.T, op ib.Opcode, size int) {
	t.Helper()
	err := l.endpoint[0].PostSend(&ib.SendWR{Opcode: op, Signaled: true,
		SGList: []ib.SGE{{Addr: l.region[0].Addr(), Length: uint32(size), LKey: l.region[0].LKey()}},
		Remote: ib.RemoteAddr{Addr: l.region[1].Addr(), RKey: l.region[1].RKey()}})
	if err != nil {
		t.Fatal(err)
	}
}
