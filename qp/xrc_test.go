package qp

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// oneSRQ is an XRC domain with one shared receive queue, of number 7.
type oneSRQ struct {
	queue SRQ
	pd    *memreg.PD
}

func (d *oneSRQ) Next(r *Recv) bool {
	ok, _ := d.queue.Next(r)
	return ok
}

func (d *oneSRQ) SRQ(n uint32) (RecvSource, *memreg.PD) {
	if n != 7 {
		return nil, nil
	}
	return d, d.pd
}

type anySink struct{}

func (anySink) Complete(*ib.WC) bool { return true }

type scratch struct{ buf [rocev2.MaxPacketLen]byte }

func (s *scratch) Room() []byte                              { return s.buf[:] }
func (s *scratch) Commit(int, *ib.AddressVector, PacketKind) {}

var xrcPeer = netip.MustParseAddr("10.0.0.9")

// newXRC makes an initiator or a target in a state up to RTS, or in ERR.
func newXRC(t testing.TB, typ ib.QPType, state ib.State) *QP {
	t.Helper()
	key := uint32(1)
	mem := memreg.NewTable(func() uint32 { key += 0x11; return key })
	pd := mem.AllocPD()
	d := &oneSRQ{pd: pd}
	d.queue.Init(4, 1, pd, anySink{})
	region, err := mem.Register(pd, memreg.Local(make([]byte, 1024)), memreg.Options{Access: ib.LocalWrite})
	must(t, err)
	for range 4 {
		must(t, d.queue.Post(&ib.RecvWR{SGList: []ib.SGE{region.All()}}))
	}
	c := Config{QPN: 0x11, Type: typ, Memory: mem, MaxSendWR: 4}
	if typ == ib.XRCTarget {
		c.Domain = d
	} else {
		c.PD, c.SendCQ = pd, anySink{}
	}
	q, err := New(c)
	must(t, err)
	a := ib.Attr{Port: 1, Access: ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic, AV: ib.AddressVector{DGID: xrcPeer},
		PathMTU: rocev2.MTU256, DestQPN: 0x22, MaxRdAtomic: 4, MaxDestRdAtomic: 4, RQPSN: 0, SQPSN: 0, RetryCount: 7, Timeout: 14}
	for s := ib.StateInit; s <= ib.StateRTS && s <= state; s++ {
		a.State = s
		must(t, q.Modify(&a, findTransition(s-1, s, typ).required|ib.AttrState))
	}
	if state == ib.StateErr {
		must(t, q.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
	}
	return q
}

// Whatever packet comes to an initiator or a target, in whatever state, has
// only the effects that a queue pair with one half can have. An initiator takes
// no request, and a target no response.
func TestXRCTakesAnything(t *testing.T) {
	t.Parallel()
	for _, typ := range []ib.QPType{ib.XRCInitiator, ib.XRCTarget} {
		for _, state := range []ib.State{ib.StateReset, ib.StateInit, ib.StateRTR, ib.StateRTS, ib.StateErr} {
			for op := range 256 {
				for _, srqn := range []uint32{0, 7, 8} {
					q := newXRC(t, typ, state)
					if q.State() == ib.StateRTS && typ == ib.XRCInitiator {
						must(t, q.PostSend(&ib.SendWR{Opcode: ib.OpSend, RemoteSRQN: 7}))
					}
					p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.Opcode(op), DestQPN: 0x11, PKey: 0xffff}, XRCETH: rocev2.XRCETH{SRQN: srqn}}
					var out scratch
					for range 2 {
						d := q.HandlePacket(0, &Arrival{Packet: &p, Src: xrcPeer})
						info, known := p.BTH.Opcode.Info()
						wrong := !known || info.Service != rocev2.ServiceXRC && info.Service != rocev2.ServiceCNP ||
							typ == ib.XRCInitiator && info.Role == rocev2.RoleRequest || typ == ib.XRCTarget && info.Role == rocev2.RoleResponse
						if wrong && d == DropNone {
							t.Errorf("%v in %v took %v", typ, state, p.BTH.Opcode)
						}
						q.Poll(0, Limit{Packets: 8, Bytes: 1 << 20}, &out)
						q.HandleTimeout(1 << 40)
						must(t, q.Check())
					}
					for q.halves.PollFinal(out.buf[:]) > 0 {
					}
					must(t, q.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState))
					q.Close()
				}
			}
		}
	}
}

// A message names one shared receive queue. A packet that names another is an
// invalid request, and so is the first of a message for a queue that is not
// there.
func TestXRCQueueOfAMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		srqns [2]uint32
		want  [2]Drop
	}{
		"one queue":     {[2]uint32{7, 7}, [2]Drop{DropNone, DropNone}},
		"then another":  {[2]uint32{7, 8}, [2]Drop{DropNone, DropInvalid}},
		"no such queue": {[2]uint32{8, 7}, [2]Drop{DropInvalid, DropState}},
	} {
		q := newXRC(t, ib.XRCTarget, ib.StateRTR)
		for i, op := range []rocev2.Opcode{rocev2.XRCSendFirst, rocev2.XRCSendLast} {
			p := rocev2.Packet{BTH: rocev2.BTH{Opcode: op, DestQPN: 0x11, PKey: 0xffff, PSN: rocev2.PSN(i)},
				XRCETH: rocev2.XRCETH{SRQN: c.srqns[i]}, Payload: make([]byte, 256)}
			if d := q.HandlePacket(0, &Arrival{Packet: &p, Src: xrcPeer}); d != c.want[i] {
				t.Errorf("%s: packet %d: %v, want %v", name, i, d, c.want[i])
			}
		}
	}
}

// FuzzXRC sends datagrams to a live target and a live initiator.
func FuzzXRC(f *testing.F) {
	for _, op := range []rocev2.Opcode{rocev2.XRCSendOnly, rocev2.XRCWriteOnlyImm, rocev2.XRCReadRequest, rocev2.XRCFetchAdd, rocev2.XRCAcknowledge} {
		p := rocev2.Packet{BTH: rocev2.BTH{Opcode: op, DestQPN: 0x11, PKey: 0xffff}, XRCETH: rocev2.XRCETH{SRQN: 7}}
		f.Add(append(p.AppendHeaders(nil), 0, 0, 0, 0))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, typ := range []ib.QPType{ib.XRCInitiator, ib.XRCTarget} {
			q := newXRC(t, typ, ib.StateRTS)
			if typ == ib.XRCInitiator {
				must(t, q.PostSend(&ib.SendWR{Opcode: ib.OpSend, RemoteSRQN: 7}))
			}
			var out scratch
			var p rocev2.Packet
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 16+int(rest[0])&0x7c)
				if p.Parse(rest[:n]) == nil {
					p.BTH.DestQPN, p.BTH.PKey = 0x11, 0xffff
					q.Poll(0, Limit{Packets: 8, Bytes: 1 << 20}, &out)
					q.HandlePacket(0, &Arrival{Packet: &p, Src: xrcPeer})
					must(t, q.Check())
				}
				rest = rest[n:]
			}
			q.Close()
		}
	})
}

// A half that is not there takes nothing, by whatever way, and says so.
func TestXRCMissingHalf(t *testing.T) {
	t.Parallel()
	for _, state := range []ib.State{ib.StateReset, ib.StateInit, ib.StateRTR, ib.StateRTS, ib.StateErr} {
		q := newXRC(t, ib.XRCTarget, state)
		wrs := []ib.SendWR{{Opcode: ib.OpSend, RemoteSRQN: 7}, {Opcode: ib.OpLocalInv}}
		if err := q.PostSend(&wrs[0]); !errors.Is(err, ib.ErrNoSend) {
			t.Errorf("%v: PostSend: %v", state, err)
		}
		if n, err := q.PostSends(wrs); n != 0 || !errors.Is(err, ib.ErrNoSend) {
			t.Errorf("%v: PostSends: %d, %v", state, n, err)
		}
		if n, err := q.PostSends(nil); n != 0 || err != nil {
			t.Errorf("%v: PostSends of nothing: %d, %v", state, n, err)
		}
		if err := q.PostRecv(&ib.RecvWR{}); !errors.Is(err, ib.ErrShared) {
			t.Errorf("%v: PostRecv to a target: %v", state, err)
		}
		if err := newXRC(t, ib.XRCInitiator, state).PostRecv(&ib.RecvWR{}); !errors.Is(err, ib.ErrNoReceive) {
			t.Errorf("%v: PostRecv to an initiator: %v", state, err)
		}
	}
}

// What a half does not take is counted under the reason: the service has it,
// and this queue pair does not. A congestion notification is counted by a
// target too: there is nothing that it could send slower.
func TestXRCWrongHalf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ  ib.QPType
		op   rocev2.Opcode
		want Drop
	}{
		{ib.XRCInitiator, rocev2.XRCSendOnly, DropService},
		{ib.XRCInitiator, rocev2.XRCReadRequest, DropService},
		{ib.XRCTarget, rocev2.XRCAcknowledge, DropService},
		{ib.XRCTarget, rocev2.XRCReadResponseOnly, DropService},
		{ib.XRCTarget, rocev2.XRCAtomicAcknowledge, DropService},
		{ib.XRCTarget, rocev2.RCSendOnly, DropService},
		{ib.XRCTarget, rocev2.CNP, DropNone},
		{ib.XRCInitiator, rocev2.CNP, DropNone},
	} {
		for _, state := range []ib.State{ib.StateRTS, ib.StateErr} {
			q := newXRC(t, c.typ, state)
			want, cnps := c.want, uint64(0)
			switch {
			case c.op == rocev2.CNP && state == ib.StateErr:
				want = DropState
			case c.op == rocev2.CNP:
				cnps = 1
			}
			p := rocev2.Packet{BTH: rocev2.BTH{Opcode: c.op, DestQPN: 0x11, PKey: 0xffff}, XRCETH: rocev2.XRCETH{SRQN: 7}}
			d := q.HandlePacket(0, &Arrival{Packet: &p, Src: xrcPeer})
			if st := q.Stats(); d != want || (want != DropNone) != (st.Drops.Total() == 1) || want != DropNone && *st.Drops.Of(want) != 1 || st.CNPsReceived != cnps {
				t.Errorf("%v in %v takes %v: %v, %d notifications", c.typ, state, c.op, d, st.CNPsReceived)
			}
			if q.State() != state {
				t.Errorf("%v is in %v after %v", c.typ, q.State(), c.op)
			}
		}
	}
}
