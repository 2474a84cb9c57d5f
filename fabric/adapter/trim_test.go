package adapter

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/qp/cc"
)

// trimming is a switch whose queues of class 3 hold 20 packets, and which cuts
// the payload off what comes beyond that, into class 6.
func trimming(trim bool) network.Switch {
	sw := network.Switch{Buffer: 64 << 20}
	sw.Classes[3].EgressMax, sw.Classes[6].Strict = 20*4200, true
	if trim {
		sw.Program = func(*network.View) network.Hooks {
			return network.Hooks{Enqueue: func(p *network.Packet, at network.Place, why network.Drop) network.Verdict {
				if why == network.EgressFull && at.Class == 3 {
					p.Size, p.DSCP = 84, 48
					p.Flags |= network.Trimmed
				}
				return network.Default
			}}
		}
	}
	return sw
}

// incast has 8 hosts write to one, or be read by it, 20 packets each.
func incast(t *testing.T, op ib.Opcode, trim, real bool) (last event.Time, stats qp.Stats, n network.Totals) {
	t.Helper()
	const senders, size = 8, 20 * 4096
	a := star(t, senders+1, 0, trimming(trim), Config{Real: real, Window: qp.WindowConfig{InitialBytes: 1 << 20, MaxBytes: 1 << 20}})
	fixed := func() cc.Controller { return cc.NewStatic(1<<20, cc.Config{MaxBytes: 1 << 20, MaxPSNs: 1 << 12}) }
	done := 0
	for i := range senders {
		from, to := i, senders
		if op == ib.OpRead {
			from, to = senders, i
		}
		x, y := mustConnect(t, a, from, to, Connection{TrafficClass: 26 << 2, Congestion: fixed})
		rq := Request{Op: op, Bytes: size, Done: func(c Completion) {
			last = max(last, c.End)
			done++
			if c.Status != ib.StatusSuccess {
				t.Errorf("%v: %v", op, c.Status)
			}
		}}
		if real {
			source, target := make([]byte, size), make([]byte, size)
			for j := range source {
				source[j] = byte(j*7 + i)
			}
			if op == ib.OpRead {
				copy(target, source)
				clear(source)
			}
			here, err := x.Host().Register(source)
			must(t, err)
			there, err := y.Host().Register(target)
			must(t, err)
			rq.Local, rq.Remote = here.All(), ib.RemoteAddr{Addr: there.Addr(), RKey: there.RKey()}
			if op == ib.OpSend {
				must(t, y.PostRecv(there.All()))
			}
			want := max(string(source), string(target)) // the other one is zeros
			defer func() {
				if string(target) != want || string(source) != want {
					t.Errorf("%v from %d: other bytes", op, i)
				}
			}()
		}
		must(t, x.Post(rq))
	}
	settle(t, a)
	if done != senders {
		t.Errorf("%v: %d of %d completed", op, done, senders)
	}
	return last, a.Stats(), a.Network().Totals()
}

// What switches trim is sent again at once: an incast that overflows the queue
// is over when the cable has carried it, not after the probes by which the loss
// of a whole tail shows otherwise.
func TestTrimmed(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead, ib.OpSend} {
		with, stats, n := incast(t, op, true, false)
		without, _, lost := incast(t, op, false, false)
		if n.Dropped() != 0 || lost.Drops[network.EgressFull] == 0 {
			t.Errorf("%v: %d packets dropped with trimming, and %d without", op, n.Dropped(), lost.Dropped())
		}
		const cable = 8 * 20 * 339 * event.Nanosecond // at 100 Gb/s
		t.Logf("%v: %v with trimming, %v without; the cable needs %v; %d packets sent again", op, with, without, cable, stats.Retransmits)
		if with > 2*cable || without < 2*with {
			t.Errorf("%v: %v with trimming, %v without; the cable needs %v", op, with, without, cable)
		}
	}
}

// With Config.Real the bytes are those that were sent.
func TestTrimmedReal(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead, ib.OpSend} {
		if _, stats, _ := incast(t, op, true, true); stats.Retransmits == 0 {
			t.Errorf("%v: nothing was trimmed", op)
		}
	}
}
