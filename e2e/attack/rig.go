package attack

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// rig is a connection of two state machines, a the requester and b the
// responder, without devices, network and real time: cheap enough to be made
// anew for every guess.
type rig struct {
	a, b         *qp.QP
	now          clock.Time
	aDone, bDone sink
	n            int    // its length
	room         []byte // of the packet under way
	packet       rocev2.Packet
	sent         int // messages posted by a
}

// sink counts completions.
type sink struct {
	ok, failed int
}

func (s *sink) Complete(c *ib.WC) bool {
	if c.Status == ib.StatusSuccess {
		s.ok++
	} else {
		s.failed++
	}
	return true
}

// rigMemory is what all rigs of a series share.
type rigMemory struct {
	table *memreg.Table
	pd    *memreg.PD
	a, b  []byte
	ra, r *memreg.Region
}

const (
	rigMessages = 1 << 14 // receives that b has
	messageLen  = 8
	rigBytes    = rigMessages * messageLen
	rigRead     = 64 << 10 // bytes of one READ
)

func newRigMemory(rng *rand.Rand) (*rigMemory, error) {
	m := &rigMemory{table: memreg.NewTable(rng.Uint32), a: make([]byte, rigBytes), b: make([]byte, rigBytes)}
	m.pd = m.table.AllocPD()
	all := ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
	var err error
	if m.ra, err = m.table.Register(m.pd, memreg.Local(m.a), memreg.Options{Access: all}); err != nil {
		return nil, err
	}
	m.r, err = m.table.Register(m.pd, memreg.Local(m.b), memreg.Options{Access: all})
	return m, err
}

var rigAddr = [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}

const (
	rigQPN = 0x100 // of a; b's is one more
	rigPSN = 1000  // that a and b send first
)

// The window towards a peer of our kind: all of the 4096 small packets fit.
const (
	ownBytes   = 9 << 18
	ownPackets = qp.MaxReorder
)

// newRig connects two queue pairs, which with own keep packets after gaps and
// have the wide window. Room for n receives is made.
func newRig(m *rigMemory, own bool, n int) (*rig, error) {
	r := &rig{room: make([]byte, rocev2.MaxPacketLen)}
	for i, q := range []**qp.QP{&r.a, &r.b} {
		c := qp.Config{QPN: rocev2.QPN(rigQPN + i), Memory: m.table, PD: m.pd, SendCQ: &r.aDone, RecvCQ: &r.bDone, MaxInline: messageLen}
		if own { // grown to its limit
			c.Window = qp.WindowConfig{InitialBytes: ownBytes, MaxBytes: ownBytes, MaxPSNs: ownPackets}
		}
		if i == 0 {
			c.MaxSendWR = n
		} else {
			c.MaxRecvWR, c.MaxRecvSGE = n, 1
		}
		var err error
		if *q, err = qp.New(c); err != nil {
			return nil, err
		}
		if err := r.connect(*q, i); err != nil {
			return nil, err
		}
		if own {
			(*q).SetReorder(qp.NewPool(1024))
		}
	}
	for i := range n {
		wr := ib.RecvWR{SGList: []ib.SGE{{Addr: m.r.Addr() + uint64(i*messageLen), Length: messageLen, LKey: m.r.LKey()}}}
		if err := r.b.PostRecv(&wr); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *rig) connect(q *qp.QP, i int) error {
	all := ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
	for _, s := range []struct {
		attr ib.Attr
		mask ib.AttrMask
	}{
		{ib.Attr{State: ib.StateInit, Port: 1, Access: all},
			ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess},
		{ib.Attr{State: ib.StateRTR, AV: ib.AddressVector{DGID: rigAddr[1-i]}, PathMTU: rocev2.MTU1024,
			DestQPN: rocev2.QPN(rigQPN + 1 - i), RQPSN: rigPSN, MaxDestRdAtomic: 16, MinRNRTimer: 1},
			ib.AttrState | ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN | ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer},
		{ib.Attr{State: ib.StateRTS, SQPSN: rigPSN, Timeout: 14, RetryCount: 7, RNRRetry: 7, MaxRdAtomic: 16},
			ib.AttrState | ib.AttrSQPSN | ib.AttrTimeout | ib.AttrRetryCount | ib.AttrRNRRetry | ib.AttrMaxRdAtomic},
	} {
		if err := q.Modify(&s.attr, s.mask); err != nil {
			return err
		}
	}
	return nil
}

// send posts n numbered messages to a.
func (r *rig) send(n int) error {
	var b [messageLen]byte
	for range n {
		binary.BigEndian.PutUint64(b[:], uint64(r.sent))
		if err := r.a.PostSend(&ib.SendWR{Opcode: ib.OpSend, Signaled: true, Inline: b[:]}); err != nil {
			if r.a.State() == ib.StateErr {
				return nil
			}
			return fmt.Errorf("post message %d: %w", r.sent, err)
		}
		r.sent++
	}
	return nil
}

// hand gives a packet to q as if its peer had sent it. b has room for the ICRC,
// which is not checked here.
func (r *rig) hand(q *qp.QP, b []byte) error {
	if err := r.packet.Parse(b); err != nil {
		return err
	}
	from := rigAddr[1]
	if q == r.b {
		from = rigAddr[0]
	}
	q.HandlePacket(r.now, &qp.Arrival{Packet: &r.packet, Src: from})
	return nil
}

// Room implements qp.Writer.
func (r *rig) Room() []byte { return r.room }

// Commit implements qp.Writer.
func (r *rig) Commit(n int, _ *ib.AddressVector, _ qp.PacketKind) { r.n = n }

// poll makes the next packet of q in room, and returns its length; 0 if there
// is none.
func (r *rig) poll(q *qp.QP) int {
	r.n = 0
	q.Poll(r.now, qp.Limit{Packets: 1, Bytes: math.MaxInt}, r)
	return r.n
}

// move carries what from has to say to to, and reports whether there was any.
func (r *rig) move(from, to *qp.QP) (bool, error) {
	any := false
	for {
		n := r.poll(from)
		if n == 0 {
			return any, nil
		}
		any = true
		if to != nil {
			if err := r.hand(to, r.room[:n+rocev2.ICRCLen]); err != nil {
				return any, err
			}
		}
	}
}

// finish carries packets, and moves time on where there are none, until a has
// no more work or the connection has ended.
func (r *rig) finish() error {
	const timeouts = 100
	for fired := 0; fired < timeouts; {
		there, err := r.move(r.a, r.b)
		if err != nil {
			return err
		}
		back, err := r.move(r.b, r.a)
		if err != nil {
			return err
		}
		if there || back {
			continue
		}
		at, ok := r.a.Deadline()
		if !ok || r.a.State() == ib.StateErr {
			return nil
		}
		r.now = max(r.now, at)
		r.a.HandleTimeout(r.now)
		fired++
	}
	return nil
}
