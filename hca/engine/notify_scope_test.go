package engine

import (
	"math"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// dataTo is a packet of the peer's to a queue pair, marked or not.
func dataTo(q *QP, from, to *host, tc uint8) transport.RxPacket {
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, PKey: rocev2.DefaultPKey, DestQPN: q.QPN(), AckReq: true, PSN: 7}, Payload: make([]byte, 8)} // after a gap
	return transport.RxPacket{Data: append(p.AppendTo(nil), make([]byte, rocev2.ICRCLen)...), Src: from.addr, Dst: to.addr,
		SrcPort: rocev2.UDPPort, TrafficClass: tc, ICRC: transport.ICRCVerified}
}

// Config.NotifyScope says which queue pairs share the time between two
// notifications: each has it for itself, those of one peer share it, or all do.
// Two shards each keep to twice as much, so that the port does not send more.
func TestNotifyScope(t *testing.T) {
	t.Parallel()
	const marked, every = 26<<2 | 3, 10 * time.Microsecond
	for _, c := range []struct {
		scope  qp.NotifyScope
		shards int
		at     [4]uint64 // notifications in all: at once, after 9, 10 and 20 µs
	}{
		{qp.NotifyPerQP, 1, [4]uint64{4, 4, 8, 12}},
		{qp.NotifyPerPeer, 1, [4]uint64{2, 2, 4, 6}},
		{qp.NotifyPerPort, 1, [4]uint64{1, 1, 2, 3}},
		{qp.NotifyPerQP, 2, [4]uint64{4, 4, 8, 12}},
		{qp.NotifyPerPeer, 2, [4]uint64{2, 2, 2, 4}},
		{qp.NotifyPerPort, 2, [4]uint64{1, 1, 1, 2}},
	} {
		w := newWorld(t, 1)
		x, y := w.newPair(Config{})
		to := w.newHost(Config{NotifyInterval: every, NotifyScope: c.scope, Shards: c.shards}, 4096)
		var queues []*QP
		var packets []transport.RxPacket
		for i := range 4 {
			from := []*host{x, y}[i%2]
			q := to.newQP()
			to.connect(q, ib.AddressVector{DGID: from.addr}, from.newQP().QPN())
			queues = append(queues, q)
			packets = append(packets, dataTo(q, from, to, marked))
		}
		to.held = true
		begun := w.now
		for i, after := range []time.Duration{0, 9 * time.Microsecond, every, 2 * every} {
			w.now = begun.Add(after)
			to.e.Receive(w.now, packets)
			w.tx.Reset()
			to.e.Fill(w.now, w.tx, AllClasses)
			var sent uint64
			for _, q := range queues {
				sent += q.Core().Stats().CNPsSent
			}
			if sent != c.at[i] {
				t.Errorf("scope %d, %d shards: %d notifications after %v, want %d", c.scope, c.shards, sent, after, c.at[i])
			}
		}
	}
}

// The longest times are long with several shards, too.
func TestNotifyScopeForEver(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{math.MaxInt64, math.MaxInt64 / 2, math.MaxInt32 + 1} {
		w := newWorld(t, 1)
		x, _ := w.newPair(Config{})
		to := w.newHost(Config{NotifyInterval: every, NotifyScope: qp.NotifyPerPort, Shards: 2}, 4096)
		q := to.newQP()
		to.connect(q, ib.AddressVector{DGID: x.addr}, x.newQP().QPN())
		to.held = true
		for range 3 {
			to.e.Receive(w.now, []transport.RxPacket{dataTo(q, x, to, 3)})
			w.tx.Reset()
			to.e.Fill(w.now, w.tx, AllClasses)
			w.now = w.now.Add(time.Second)
		}
		if n := q.Core().Stats().CNPsSent; n != 1 {
			t.Errorf("%d notifications in %v, want 1", n, every)
		}
	}
}

// A UC queue pair has the time for itself, or with all of the port.
func TestNotifyScopeUC(t *testing.T) {
	t.Parallel()
	for scope, want := range map[qp.NotifyScope]uint64{qp.NotifyPerQP: 2, qp.NotifyPerPeer: 2, qp.NotifyPerPort: 1} {
		w := newWorld(t, 1)
		a, b := w.newPair(Config{NotifyScope: scope})
		b.held = true
		var sent uint64
		for range 2 {
			_, q := connectUC(a, b, rocev2.MTU1024, false)
			d := dataTo(q, a, b, 3)
			d.Data[0] = byte(rocev2.UCSendOnly)
			b.recv(q, 100)
			b.e.Receive(w.now, []transport.RxPacket{d})
			w.tx.Reset()
			b.e.Fill(w.now, w.tx, AllClasses)
			sent += q.Core().Stats().CNPsSent
		}
		if sent != want {
			t.Errorf("scope %d: %d notifications, want %d", scope, sent, want)
		}
	}
}

// A mark that is held takes effect with the next packet after the interval,
// whether that comes alone or in a run, and also where notifications pass the
// queue of their queue pair.
func TestNotifyHold(t *testing.T) {
	t.Parallel()
	for _, classes := range []bool{false, true} {
		for _, n := range []int{1, 8} {
			w := newWorld(t, 1)
			c := Config{NotifyInterval: 4 * time.Microsecond, NotifyHold: true}
			if classes {
				c.Class = func(tc uint8) uint8 { return tc >> 5 }
			}
			a, b := w.newPair(c)
			qa, qb := connectPair(a, b, true)
			a.write(qa, b, 8) // so that ports are known
			a.waitOK(1)
			a.held, b.held = true, true
			a.write(qa, b, 20<<10)
			w.tx.Reset()
			a.e.Fill(w.now, w.tx, AllClasses)
			var packets []transport.RxPacket
			for i := range w.tx.Len() {
				data, _ := w.tx.Packet(i)
				packets = append(packets, transport.RxPacket{Data: append(append([]byte(nil), data...), 0, 0, 0, 0), Src: a.addr, Dst: b.addr,
					SrcPort: rocev2.UDPPort, ICRC: transport.ICRCVerified})
			}
			if len(packets) < 2+n {
				t.Fatalf("%d packets", len(packets))
			}
			packets[0].TrafficClass, packets[1].TrafficClass = 3, 3
			b.e.Receive(w.now, packets[:2])
			w.tx.Reset()
			b.e.Fill(w.now, w.tx, AllClasses)
			w.now = w.now.Add(4 * time.Microsecond)
			b.e.Receive(w.now, packets[2:2+n])
			w.tx.Reset()
			b.e.Fill(w.now, w.tx, AllClasses)
			if s := qb.Core().Stats(); s.CNPsSent != 2 || s.ECNMarked != 2 {
				t.Errorf("%d packets, classes %v: %d notifications for %d marks", n, classes, s.CNPsSent, s.ECNMarked)
			}
		}
	}
}
