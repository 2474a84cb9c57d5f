package qp

import (
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// TestQuietInError: whatever ends a queue pair, none of the READ data that
// waits is sent afterwards, one packet a Poll or many, and the peer is told
// without a timeout (IBTA 10.3.1).
func TestQuietInError(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		end  func(p *pair) error
		want ib.Status
	}{
		"wrong key": {func(p *pair) error {
			return p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 8), Remote: ib.RemoteAddr{RKey: 1}})
		}, ib.StatusRemOpErr},
		"no room for a receive's completion": {func(p *pair) error {
			p.b.rq.limit, p.b.rq.n = 1, 1
			must(p.t, p.b.PostRecv(&ib.RecvWR{}))
			return p.a.PostSend(&ib.SendWR{Opcode: ib.OpSend})
		}, ib.StatusRemOpErr},
		"no room for a send's completion": {func(p *pair) error {
			p.b.sq.limit, p.b.sq.n = 1, 1
			p.a.delay = true // until the READs are there
			err := p.b.PostSend(&ib.SendWR{Opcode: ib.OpSend, Signaled: true})
			p.transfer(p.b, 1)
			return err
		}, ib.StatusRemOpErr},
		"Modify": {func(p *pair) error {
			return p.b.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState)
		}, ib.StatusRetryExcErr},
	}
	for name, c := range ends {
		for _, bursts := range []bool{false, true} {
			p := newPair(t, pairConfig{attr: ib.Attr{MaxRdAtomic: 16, MaxDestRdAtomic: 16},
				config: Config{Window: WindowConfig{MaxPSNs: 1 << 20, MaxBytes: 1 << 30, InitialBytes: 1 << 30}}})
			p.bursts = bursts
			must(t, p.a.PostRecv(&ib.RecvWR{}))
			for i := range 16 {
				must(t, p.a.PostSend(&ib.SendWR{ID: uint64(i), Opcode: ib.OpRead, SGList: p.a.sge(0, 1<<17), Remote: p.b.remote(0)}))
			}
			must(t, c.end(p))
			data, packets := 0, 0
			p.drop = func(from *testEnd, pkt *rocev2.Packet) bool {
				if from == p.b && p.b.State() == ib.StateErr {
					packets++
					data += len(pkt.Payload)
				}
				return false
			}
			p.transfer(p.a, 64) // all of it before the first answer
			p.a.delay = false
			p.transfer(p.a, 1)
			if p.b.State() != ib.StateErr {
				t.Fatalf("%s: no error", name)
			}
			p.settle()
			if data > 0 || packets > fatalRepeats+1 {
				t.Errorf("%s, bursts=%v: %d packets with %d bytes after the error", name, bursts, packets, data)
			}
			s := p.a.sq.statuses()
			if !strings.Contains(s, c.want.String()) || p.a.Stats().Timeouts > 0 && c.want == ib.StatusRemOpErr {
				t.Errorf("%s, bursts=%v: %d timeouts, %q", name, bursts, p.a.Stats().Timeouts, s)
			}
		}
	}
}

// TestCreditsWithReads: answers to READs and atomics bring credits like
// acknowledgements, so that a limit does not grow old on a connection that does
// nothing else (IBTA 9.7.7.2).
func TestCreditsWithReads(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	for _, op := range []ib.Opcode{ib.OpRead, ib.OpFetchAdd} {
		must(t, p.b.PostRecv(&ib.RecvWR{}))
		before := p.a.halves.req.Snapshot()
		must(t, p.a.PostSend(&ib.SendWR{Opcode: op, SGList: p.a.sge(0, 8), Remote: p.b.remote(0)}))
		p.run()
		if c := p.a.halves.req.Snapshot(); !c.Limited || c.LSN.Sub(before.LSN) < 2 {
			t.Errorf("%v: %+v after %+v", op, c, before)
		}
	}
}

// A congestion notification that was due is not sent in ERR (IBTA 10.3.1).
func TestErrSendsNoCNP(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	pkt := packet(rocev2.RCWriteMiddle, 5) // after a gap
	pkt.BTH.DestQPN, pkt.BTH.PKey, pkt.Payload = p.b.QPN(), rocev2.DefaultPKey, make([]byte, 1024)
	p.b.handleMarked(p.now, p.a.addr, &pkt)
	if !p.b.Notices().Due() {
		t.Fatal("no CNP is due")
	}
	must(t, p.b.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
	if n := p.b.poll(p.now, p.buf[:0]); n != 0 {
		t.Errorf("in ERR it sends % x", p.buf[:n])
	}
}
