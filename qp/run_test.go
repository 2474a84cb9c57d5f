package qp

import (
	"bytes"
	"cmp"
	"fmt"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/requester"
	"github.com/gosoftroce/rocev2/rocev2"
)

// midst is a message of ten packets, of which one end has received the first.
type midst struct {
	*pair
	from, to *testEnd // of its data
	rest     []rocev2.Packet
	pauses   requester.Pauses // that to knows
}

const midstSize = 10 * 1024

// newMidst begins a message between a and b. Prepare, if any, is given the end
// whose memory is to be written, and returns the key of that, or 0.
func newMidst(t *testing.T, op ib.Opcode, prepare func(to *testEnd) ib.Key) *midst {
	t.Helper()
	config := pairConfig{attr: ib.Attr{SQPSN: 16}}
	if op == ib.OpRead {
		config.attr.SQPSN = 1<<24 - 4
	}
	m := &midst{pair: newPair(t, config)}
	p := m.pair
	m.from, m.to = p.a, p.b
	if op == ib.OpRead {
		m.from, m.to = p.b, p.a
	}
	m.to.halves.req.SharePauses(&m.pauses)
	key := p.b.mr.RKey()
	if prepare != nil {
		key = cmp.Or(prepare(m.to), key)
	}
	must(t, p.b.PostRecv(&ib.RecvWR{ID: 7, SGList: []ib.SGE{p.b.mr.SGE(4096, midstSize)}}))
	wr := ib.SendWR{ID: 8, Opcode: op, Signaled: true, SGList: []ib.SGE{p.a.mr.SGE(4096, midstSize)}}
	if op != ib.OpSend {
		wr.Remote = ib.RemoteAddr{Addr: testIOVA + 4096, RKey: key}
	}
	must(t, p.a.PostSend(&wr))
	if op == ib.OpRead {
		p.transfer(p.a, 1)
	}
	for range 10 {
		b := make([]byte, rocev2.MaxPacketLen)
		var one rocev2.Packet
		must(t, one.Parse(b[:m.from.poll(p.now, b[:0])+rocev2.ICRCLen]))
		m.rest = append(m.rest, one)
	}
	m.alone(t, 1)
	return m
}

// alone hands n packets to their receiver one by one.
func (m *midst) alone(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		if d := m.to.handle(m.now, m.from.addr, &m.rest[i]); d != DropNone {
			t.Fatalf("%v: %v", m.rest[i].BTH.Opcode, d)
		}
	}
	m.rest = m.rest[n:]
}

// together hands n packets to their receiver as a run.
func (m *midst) together(t *testing.T, n int) {
	t.Helper()
	h := &m.rest[0].BTH
	v := m.to.halves.Middle(m.from.addr, h, 1024, n)
	b := v.Place(0, v.Len())
	if len(b) < n*1024 {
		t.Fatalf("there is memory of %d bytes for %d packets", len(b), n)
	}
	for i := range n {
		copy(b[i*1024:], m.rest[i].Payload)
	}
	v.Release()
	if did := m.to.HandleRun(m.now, h.Opcode, n); did != n {
		t.Fatalf("of %d packets %d were taken", n, did)
	}
	m.rest = m.rest[n:]
}

// end has the rest of the message arrive, and returns all that can be seen of
// it.
func (m *midst) end(t *testing.T) string {
	t.Helper()
	in, silent := m.a.InFlight()
	before := fmt.Sprintf("%d %v %+v", in, silent, m.pauses)
	m.alone(t, len(m.rest))
	m.settle()
	if !bytes.Equal(m.a.mem[4096:][:midstSize], m.b.mem[4096:][:midstSize]) {
		t.Error("the data is another")
	}
	return fmt.Sprintf("%v\n%+v\n%+v\n%v\n%v\n%v", before, m.a.Stats(), m.b.Stats(), m.a.sq.wcs, m.b.rq.wcs, m.pauses)
}

// A run is what its packets are, one by one, in what is counted, completed,
// and known of the peer.
func TestRunIsItsPackets(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpSend, ib.OpWrite, ib.OpRead} {
		for _, state := range []ib.State{ib.StateRTS, ib.StateSQD} {
			one, run := newMidst(t, op, nil), newMidst(t, op, nil)
			for _, m := range []*midst{one, run} {
				if state == ib.StateSQD {
					must(t, m.to.Modify(&ib.Attr{State: state}, ib.AttrState))
				}
				m.now = 12345
			}
			for range 2 {
				one.alone(t, 4)
				run.together(t, 4)
			}
			if got, want := run.end(t), one.end(t); got != want {
				t.Errorf("%v, %v:\nas a run   %s\none by one %s", op, state, got, want)
			}
		}
	}
}

// A connection that ends while it takes a run is flushed.
func TestRunThatFails(t *testing.T) {
	t.Parallel()
	m := newMidst(t, ib.OpRead, nil)
	m.to.conn.Fail(conn.EndLocal) // as a half does
	if n := m.to.HandleRun(m.now, rocev2.RCReadResponseMiddle, 5); n != 1 {
		t.Errorf("%d packets were taken, want 1", n)
	}
	if wcs := m.to.sq.wcs; len(wcs) != 1 || wcs[0].Status != ib.StatusWRFlushErr {
		t.Errorf("completions %+v", wcs)
	}
	if got := m.to.Stats().RxPackets; got != 2 {
		t.Errorf("%d packets were counted, want 2", got)
	}
}

// There is no memory for a run, and no pin, where its packets one by one would
// meet anything else than the message under way and memory to copy them to.
func TestNoMiddle(t *testing.T) {
	t.Parallel()
	toState := func(s ib.State) func(m *midst) {
		return func(m *midst) { must(m.t, m.to.Modify(&ib.Attr{State: s}, ib.AttrState)) }
	}
	head := func(change func(h *rocev2.BTH)) func(m *midst) {
		return func(m *midst) { change(&m.rest[0].BTH) }
	}
	for name, change := range map[string]func(m *midst){
		"another source":     func(m *midst) { m.from = m.to },
		"another size":       func(m *midst) { m.to.conn.MTU /= 2 },
		"another queue pair": head(func(h *rocev2.BTH) { h.DestQPN++ }),
		"AckReq":             head(func(h *rocev2.BTH) { h.AckReq = true }),
		"another partition":  head(func(h *rocev2.BTH) { h.PKey-- }),
		"a later PSN":        head(func(h *rocev2.BTH) { h.PSN++ }),
		"an earlier PSN":     head(func(h *rocev2.BTH) { h.PSN-- }),
		"an opcode of XRC":   head(func(h *rocev2.BTH) { h.Opcode += rocev2.XRCSendFirst }),
		"the last packet":    head(func(h *rocev2.BTH) { h.Opcode++ }),
		"ERR":                toState(ib.StateErr),
		"RESET":              toState(ib.StateReset),
		"a key that is gone": func(m *midst) { must(m.t, m.to.table.Deregister(m.to.mr)) },
		"another message": head(func(h *rocev2.BTH) {
			if h.Opcode == rocev2.RCWriteMiddle {
				h.Opcode = rocev2.RCSendMiddle
			} else {
				h.Opcode = rocev2.RCWriteMiddle
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			for _, op := range []ib.Opcode{ib.OpSend, ib.OpWrite, ib.OpRead} {
				m := newMidst(t, op, nil)
				change(m)
				m.refused(t, op)
			}
		})
	}
	t.Run("a right that is gone", func(t *testing.T) {
		m := newMidst(t, ib.OpWrite, nil)
		must(t, m.to.Modify(&ib.Attr{Access: ib.RemoteRead}, ib.AttrAccess))
		m.refused(t, ib.OpWrite)
	})
	t.Run("memory of others", func(t *testing.T) {
		for _, op := range []ib.Opcode{ib.OpSend, ib.OpWrite, ib.OpRead} {
			newMidst(t, op, func(to *testEnd) ib.Key {
				addForeign(t, to)
				if op == ib.OpWrite {
					return to.mr.RKey()
				}
				return 0
			}).refused(t, op)
		}
	})
	t.Run("a gap", func(t *testing.T) {
		for _, op := range []ib.Opcode{ib.OpSend, ib.OpWrite, ib.OpRead} {
			m := newMidst(t, op, nil)
			m.to.SetReorder(NewPool(16))
			m.to.handle(m.now, m.from.addr, &m.rest[3])
			m.refused(t, op)
		}
	})
}

// refused checks that there is no run now.
func (m *midst) refused(t *testing.T, op ib.Opcode) {
	t.Helper()
	if v := m.to.halves.Middle(m.from.addr, &m.rest[0].BTH, 1024, 4); v.Region() != nil {
		t.Errorf("%v: memory of %d bytes", op, v.Len())
	}
}

// A peer that has the key of a window may write through it as a run, until the
// window is gone.
func TestMiddleThroughWindow(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"revoked", "invalidated"} {
		var g *memreg.Grant
		m := newMidst(t, ib.OpWrite, func(to *testEnd) ib.Key {
			mr, err := to.table.Register(to.pd, memreg.Local(to.mem), memreg.Options{Access: ib.LocalWrite | ib.MWBind, Base: memreg.BaseIOVA, IOVA: testIOVA})
			must(t, err)
			g, err = to.table.Grant(mr, memreg.GrantOptions{Offset: 4096, Length: midstSize, Access: ib.RemoteWrite, QPN: to.QPN(), Invalidatable: true})
			must(t, err)
			return g.Key()
		})
		m.together(t, 4)
		if end == "revoked" {
			m.to.table.Revoke(g)
		} else if f := m.to.table.Invalidate(m.to.pd, m.to.QPN(), g.Key()); f != ib.FaultNone {
			t.Fatal(f)
		}
		m.refused(t, ib.OpWrite)
		if d := m.to.handle(m.now, m.from.addr, &m.rest[0]); d != DropInvalid {
			t.Errorf("%s: a packet after the run: %v", end, d)
		}
	}
}

// Queue pairs of other services take no runs: not one that has half of what a
// connection has, or none.
func TestNoMiddleOfOtherServices(t *testing.T) {
	t.Parallel()
	queuePairs := map[ib.QPType]*QP{}
	for _, typ := range []ib.QPType{ib.XRCInitiator, ib.XRCTarget} {
		queuePairs[typ] = newXRC(t, typ, ib.StateRTS)
	}
	for _, typ := range []ib.QPType{ib.UC, ib.UD} {
		queuePairs[typ] = newDatagramPair(t, typ).b.QP
	}
	for typ, q := range queuePairs {
		for _, op := range []rocev2.Opcode{rocev2.RCSendMiddle, rocev2.RCWriteMiddle, rocev2.RCReadResponseMiddle} {
			h := rocev2.BTH{Opcode: op, PKey: rocev2.DefaultPKey, DestQPN: q.QPN(), PSN: 0xfffffe}
			if v := q.halves.Middle(q.conn.Peer, &h, q.conn.MTU, 2); v.Region() != nil {
				t.Errorf("%v: memory of %d bytes for %v", typ, v.Len(), op)
			}
		}
	}
}
