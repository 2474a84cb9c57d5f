package qp

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// packetList is a Writer that keeps at most room packets.
type packetList struct {
	room    int
	packets [][]byte
	buf     [rocev2.MaxPacketLen]byte
	asked   int // Room calls that had room
}

func (l *packetList) Room() []byte {
	if l.room == 0 {
		return nil
	}
	l.asked++
	for i := range l.buf { // what is not written shows
		l.buf[i] = 0xa5
	}
	return l.buf[:]
}

func (l *packetList) Commit(n int, _ *ib.AddressVector, _ PacketKind) {
	l.room--
	l.packets = append(l.packets, bytes.Clone(l.buf[:n]))
}

// failing is memory that can only be copied, and of which the end fails on
// demand, as a mapped file that was cut.
type failing struct {
	memreg.Memory
	end uint64
}

func (f *failing) Bytes() []byte { return nil }

func (f *failing) CopyOut(dst []byte, off uint64) error {
	if off+uint64(len(dst)) > f.end {
		return errUnmapped
	}
	return f.Memory.CopyOut(dst, off)
}

// twins are two pairs to which the same happens. One polls packet by packet,
// the other one polls many at once: there must be no other difference.
type twins struct {
	t    *testing.T
	rng  *rand.Rand
	each [2]*pair
	mem  [2][2]*failing // of each pair, of each side
	log  []string
	n    burstTally
}

// burstTally counts what the bursts were, to show that the test reaches what it
// should.
type burstTally struct {
	packets, bursts, requests, responses, full, cut, failed, reset, drained int
}

const twinMemory = 96 << 10

func newTwins(t *testing.T, seed uint64) *twins {
	w := &twins{t: t, rng: rand.New(rand.NewPCG(seed, 0xb0257))}
	r := w.rng
	mtu := []rocev2.MTU{rocev2.MTU256, rocev2.MTU512, rocev2.MTU1024, rocev2.MTU2048, rocev2.MTU4096}[r.IntN(5)]
	c := pairConfig{mem: twinMemory, attr: ib.Attr{PathMTU: mtu, Timeout: 10, MaxRdAtomic: uint8(1 + r.IntN(4)), MaxDestRdAtomic: 4},
		config: Config{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 3, MaxRecvSGE: 3, MaxInline: min(8*mtu.Bytes(), ib.MaxInline)}}
	if r.IntN(2) == 0 {
		c.config.Window = WindowConfig{InitialBytes: 1 + r.IntN(60*mtu.Bytes()), MaxPSNs: r.IntN(100)}
		c.config.Window.MaxBytes = c.config.Window.InitialBytes * (1 + r.IntN(3))
	}
	if r.IntN(3) == 0 {
		c.config.ReadChunk = 1 + r.IntN(20*mtu.Bytes())
	}
	if r.IntN(2) == 0 {
		c.config.MinProbe = 100000
	}
	keep, foreign := r.IntN(2) == 0, r.IntN(3) == 0
	for i := range w.each {
		p := newPair(t, c)
		w.each[i] = p
		for k, e := range []*testEnd{p.a, p.b} {
			if keep {
				e.SetReorder(NewPool(64))
			}
			if foreign {
				w.mem[i][k] = &failing{Memory: memreg.Local(e.mem), end: twinMemory}
				e.table.Deregister(e.mr)
				var err error
				e.mr, err = e.table.Register(e.pd, w.mem[i][k], memreg.Options{Access: testAccess, Base: memreg.BaseIOVA, IOVA: testIOVA})
				must(t, err)
			}
		}
	}
	return w
}

func (p *pair) side(k int) *testEnd { return []*testEnd{p.a, p.b}[k] }

// both does the same to a side of each pair.
func (w *twins) both(k int, what string, f func(p *pair, e *testEnd, i int) error) {
	w.t.Helper()
	w.log = append(w.log, fmt.Sprintf("%c %s", 'a'+k, what))
	var errs [2]error
	for i, p := range w.each {
		errs[i] = f(p, p.side(k), i)
	}
	if fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) {
		w.fail("%s: %v without bursts, %v with them", what, errs[0], errs[1])
	}
}

func (w *twins) fail(format string, args ...any) {
	w.t.Helper()
	for _, l := range w.log {
		w.t.Log(l)
	}
	w.t.Fatalf(format, args...)
}

// plain polls up to most packets.
func (p *pair) plain(e *testEnd, most int) (packets [][]byte) {
	for len(packets) < most {
		n := e.poll(p.now, p.buf)
		if n == 0 {
			break
		}
		packets = append(packets, bytes.Clone(p.buf[:n]))
	}
	return packets
}

// bursts polls up to most packets, with random limits and rooms.
func (w *twins) bursts(p *pair, e *testEnd, most int) [][]byte {
	var l packetList
	for len(l.packets) < most {
		left := most - len(l.packets)
		l.room = left
		if w.rng.IntN(3) == 0 {
			l.room = w.rng.IntN(left + 1)
		}
		limit, before, asked, room := left, len(l.packets), l.asked, l.room
		if w.rng.IntN(3) == 0 {
			limit = w.rng.IntN(left + 1)
		}
		responding := e.halves.resp.Waiting() && !e.ackDelayed()
		polled := e.Poll(p.now, Limit{Packets: limit, Bytes: e.bytes, DelayAck: e.delay, AckFirst: e.first}, &l)
		e.bytes -= polled.Bytes
		n := len(l.packets) - before
		if polled.Packets != n || n > limit || n > room {
			w.fail("a poll of %d packets, limit %d, room %d, returns %d", n, limit, room, polled.Packets)
		}
		if n > 1 {
			w.n.bursts++
			w.n.packets += n
			if responding {
				w.n.responses++
			} else {
				w.n.requests++
			}
			if n == room && n < limit {
				w.n.full++
			}
			if l.asked-asked > n {
				w.n.cut++
			}
		}
		if n == 0 && limit > 0 && room > 0 {
			break
		}
	}
	return l.packets
}

// send brings up to most packets from side k to the other one, of which some
// are lost.
func (w *twins) send(k, most int) {
	w.t.Helper()
	p, y := w.each[0], w.each[1]
	want, got := p.plain(p.side(k), most), w.bursts(y, y.side(k), most)
	w.log = append(w.log, fmt.Sprintf("%c sends %d", 'a'+k, len(want)))
	for i := range min(len(want), len(got)) {
		if !bytes.Equal(want[i], got[i]) {
			head := min(len(want[i]), len(got[i]), 32)
			w.fail("packet %d of %d bytes begins\n% x\nand with bursts, of %d bytes,\n% x", i, len(want[i]), want[i][:head], len(got[i]), got[i][:head])
		}
	}
	if len(want) != len(got) {
		w.fail("%d packets without bursts, %d with them", len(want), len(got))
	}
	w.compare()
	lossy := w.rng.IntN(4) == 0
	for n, data := range want {
		if lossy && w.rng.IntN(8) == 0 {
			w.log = append(w.log, fmt.Sprintf("  lost: number %d", n))
			continue
		}
		for _, p := range w.each {
			b := append(bytes.Clone(data), make([]byte, rocev2.ICRCLen)...)
			must(w.t, p.pkt.Parse(b))
			p.side(1-k).handle(p.now, p.side(k).addr, &p.pkt)
		}
	}
	w.compare()
}

// compare finds any difference between the pairs.
func (w *twins) compare() {
	w.t.Helper()
	for k := range 2 {
		x, y := w.each[0].side(k), w.each[1].side(k)
		if x.Stats() != y.Stats() {
			w.fail("%c: statistics\n%+v\nand with bursts\n%+v", 'a'+k, x.Stats(), y.Stats())
		}
		nx, sx := x.InFlight()
		ny, sy := y.InFlight()
		if x.State() != y.State() || nx != ny || sx != sy || !reflect.DeepEqual(x.Attr(), y.Attr()) {
			w.fail("%c: %v, %d bytes in flight; with bursts %v, %d", 'a'+k, x.State(), nx, y.State(), ny)
		}
		if rx, ry := x.halves.req.Snapshot(), y.halves.req.Snapshot(); !reflect.DeepEqual(rx, ry) {
			w.fail("%c: requester\n%+v\nand with bursts\n%+v", 'a'+k, rx, ry)
		}
		if rx, ry := x.halves.resp.Snapshot(), y.halves.resp.Snapshot(); !reflect.DeepEqual(rx, ry) {
			w.fail("%c: responder\n%+v\nand with bursts\n%+v", 'a'+k, rx, ry)
		}
		if !reflect.DeepEqual(x.sq.wcs, y.sq.wcs) || !reflect.DeepEqual(x.rq.wcs, y.rq.wcs) {
			w.fail("%c: completions %q and %q; with bursts %q and %q", 'a'+k, x.sq.statuses(), x.rq.statuses(), y.sq.statuses(), y.rq.statuses())
		}
	}
}

func (w *twins) post(k int) {
	r := w.rng
	mtu := w.each[0].a.conn.MTU
	op := []ib.Opcode{ib.OpWrite, ib.OpWrite, ib.OpSend, ib.OpRead, ib.OpRead, ib.OpWriteImm, ib.OpSendImm, ib.OpFetchAdd}[r.IntN(8)]
	n := []int{r.IntN(twinMemory / 2), r.IntN(30*mtu) % (twinMemory / 2), r.IntN(3) * mtu, 8}[r.IntN(4)]
	if op == ib.OpFetchAdd {
		n = 8
	}
	from, to := 8*r.IntN((twinMemory-n)/8+1), 8*r.IntN((twinMemory-n)/8+1)
	lists := r.IntN(6)
	if (op == ib.OpSend || op == ib.OpSendImm) && r.IntN(4) > 0 || r.IntN(3) == 0 {
		w.recv(1 - k)
	}
	flags := r.IntN(64)
	w.both(k, fmt.Sprintf("posts %v of %d bytes, flags %x, lists %d", op, n, flags, lists), func(p *pair, e *testEnd, _ int) error {
		wr := ib.SendWR{ID: 1, Opcode: op, SGList: e.sge(from, n), Remote: p.peer(e).remote(to), Signaled: flags&1 == 0, Fence: flags&6 == 0, CompareAdd: 3}
		switch {
		case op == ib.OpFetchAdd:
		case lists == 0: // in two pieces
			wr.SGList = append(e.sge(from, n/3), e.sge(from+n/3, n-n/3)...)
		case lists == 1 && op != ib.OpRead && n <= 8*mtu:
			wr.Inline = e.mem[from : from+n]
		case flags == 63: // no such key, or beyond the region
			wr.SGList[0].LKey ^= 1
		case flags == 62:
			wr.SGList[0].Length = twinMemory
		}
		return e.PostSend(&wr)
	})
}

func (w *twins) recv(k int) {
	w.both(k, "posts a receive", func(p *pair, e *testEnd, _ int) error {
		return e.PostRecv(&ib.RecvWR{ID: 2, SGList: e.sge(0, twinMemory)})
	})
}

// pass lets time pass up to the next timer, and sometimes beyond.
func (w *twins) pass() {
	now := w.each[0].now
	for k := range 2 {
		if at, ok := w.each[0].side(k).Deadline(); ok && w.rng.IntN(2) == 0 {
			now = max(now, at)
		}
	}
	now += clock.Time(w.rng.IntN(2000))
	for k := range 2 {
		w.both(k, fmt.Sprintf("time passes to %d", now), func(p *pair, e *testEnd, _ int) error {
			p.now = now
			at, ok := e.Deadline()
			e.HandleTimeout(now)
			return fmt.Errorf("a timer: %v, %v", at, ok)
		})
	}
}

// trouble does what ends a burst in the middle.
func (w *twins) trouble() {
	k := w.rng.IntN(2)
	what := w.rng.IntN(12)
	if w.mem[0][k] != nil && w.rng.IntN(3) == 0 {
		what = 2
	}
	switch what {
	case 0:
		w.both(k, "loses its region", func(_ *pair, e *testEnd, _ int) error {
			e.table.Deregister(e.mr)
			return nil
		})
	case 1:
		w.both(k, "invalidates its region's key", func(_ *pair, e *testEnd, _ int) error {
			return fmt.Errorf("%v", e.table.Invalidate(e.pd, 1, e.mr.RKey()))
		})
	case 2:
		if w.mem[0][k] == nil {
			return
		}
		end := w.rng.Uint64N(twinMemory)
		w.both(k, fmt.Sprintf("has memory to byte %d only", end), func(_ *pair, _ *testEnd, i int) error {
			w.mem[i][k].end = end
			return nil
		})
	case 3, 4, 5, 6:
		w.n.drained++
		w.both(k, "drains", func(p *pair, e *testEnd, _ int) error {
			return e.Modify(&ib.Attr{State: ib.StateSQD}, ib.AttrState)
		})
		w.send(k, w.rng.IntN(40))
		w.both(k, "goes on", func(p *pair, e *testEnd, _ int) error {
			return e.Modify(&ib.Attr{State: ib.StateRTS}, ib.AttrState)
		})
	case 7:
		w.n.reset++
		attr := w.each[0].a.Attr()
		for k := range 2 {
			w.both(k, "is reset", func(p *pair, e *testEnd, _ int) error {
				a := attr
				a.SQPSN, a.RQPSN = 5, 5
				err := e.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState)
				p.connect(e, p.peer(e), a, true)
				return err
			})
		}
	default:
		bytes := w.rng.IntN(40 * (w.each[0].a.conn.MTU + PacketOverhead))
		if w.rng.IntN(2) == 0 {
			bytes -= bytes % (w.each[0].a.conn.MTU + PacketOverhead)
		}
		w.both(k, fmt.Sprintf("may send %d bytes", bytes), func(_ *pair, e *testEnd, _ int) error {
			e.bytes = bytes
			return nil
		})
		w.send(k, 100)
		if w.rng.IntN(2) == 0 {
			return
		}
		w.both(k, "may send again", func(_ *pair, e *testEnd, _ int) error {
			e.bytes = math.MaxInt
			return nil
		})
	}
}

// play is one random history of both pairs.
func (w *twins) play() {
	for range 120 {
		k := w.rng.IntN(2)
		switch i := w.rng.IntN(32); {
		case i < 8:
			w.post(k)
		case i < 10:
			w.pass()
		case i == 10:
			w.trouble()
		case i == 11:
			on := w.rng.IntN(2) == 0
			w.both(k, fmt.Sprintf("delays acknowledgements: %v", on), func(_ *pair, e *testEnd, _ int) error {
				e.delay = on
				return nil
			})
		case i == 12:
			w.recv(k)
		default:
			w.send(k, []int{1, 3, 20, 100}[w.rng.IntN(4)])
		}
	}
	for i := range 2 {
		if x, y := w.each[0].side(i), w.each[1].side(i); !bytes.Equal(x.mem, y.mem) {
			w.fail("%c: other memory with bursts", 'a'+i)
		} else if x.State() == ib.StateErr {
			w.n.failed++
		}
	}
}

// TestBurst: in one Poll a queue pair sends the same packets as in one for
// each, in the same order, and is in the same state after it: whatever is
// posted, lost, taken away or forbidden, and wherever the room ends.
func TestBurst(t *testing.T) {
	t.Parallel()
	var sum burstTally
	seeds := uint64(250)
	if testing.Short() {
		seeds = 100
	}
	for seed := range seeds {
		w := newTwins(t, seed)
		w.log = append(w.log, fmt.Sprintf("seed %d, MTU %d", seed, w.each[0].a.conn.MTU))
		w.play()
		sum.packets += w.n.packets
		sum.bursts += w.n.bursts
		sum.requests += w.n.requests
		sum.responses += w.n.responses
		sum.full += w.n.full
		sum.cut += w.n.cut
		sum.failed += w.n.failed
		sum.reset += w.n.reset
		sum.drained += w.n.drained
	}
	t.Logf("%+v", sum)
	v := reflect.ValueOf(sum)
	for i := range v.NumField() {
		if v.Field(i).Int() == 0 {
			t.Errorf("%s: never", v.Type().Field(i).Name)
		}
	}
}
