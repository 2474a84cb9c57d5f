package verbs_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// BenchmarkHalfTrip is a message of 8 bytes from one device to another and its
// answer, of which it shows a half: post, encode, seal, check, handle,
// complete, poll. One goroutine does all of it. So it does not show what two
// processors cost each other, and is stable where processes are not. By memory
// there is no system call in it: it is the software's part alone. By UDP it
// has one that sends, and those that receive.
func BenchmarkHalfTrip(b *testing.B) {
	gcm, gmac := verbs.SealGCM128, verbs.SealGMAC128
	for _, by := range []string{"memory", "UDP"} {
		for _, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpSend} {
			for _, v := range []*verbs.SealVersion{nil, &gcm, &gmac} {
				name := fmt.Sprintf("%s/%v", by, op)
				if v != nil {
					name += "/" + v.String()
				}
				b.Run(name, func(b *testing.B) { benchmarkHalfTrip(b, op, by, v) })
			}
		}
	}
}

// benchmarkHalfTrip has the packets sealed unless v is nil.
func benchmarkHalfTrip(b *testing.B, op verbs.Opcode, by string, v *verbs.SealVersion) {
	cfg := verbs.Config{Sealing: v != nil}
	ends := memoryPair
	if by == "UDP" {
		ends = func(t testing.TB, cfg verbs.Config) (*side, *side) { return newSocketPair(t, verbs.RC, cfg) }
	}
	from, to := ends(b, cfg)
	if v != nil {
		seal(b, from.qp, to.qp, *v)
	}
	one, two := newPinger(b, op, from, to), newPinger(b, op, to, from)
	round := func() {
		one.send()
		two.await()
		two.send()
		one.await()
	}
	for range 100 { // until the devices leave receiving to this goroutine
		round()
		for range 500 {
			from.cq.Poll(one.wc[:0])
			to.cq.Poll(two.wc[:0])
		}
	}
	b.ReportAllocs()
	var parts []float64
	for n, begun := 0, time.Now(); b.Loop(); n++ {
		round()
		if n%halfTripPart == halfTripPart-1 {
			now := time.Now()
			parts = append(parts, float64(now.Sub(begun).Nanoseconds())/halfTripPart/2)
			begun = now
		}
	}
	if len(parts) > 0 {
		slices.Sort(parts)
		b.ReportMetric(parts[len(parts)/10], "ns/half")
	}
}

// halfTripPart is how many round trips are timed at once. Of all such times the
// tenth is shown of a hundred: others use the machine as well.
const halfTripPart = 256

// pinger is one end of messages that go back and forth.
type pinger struct {
	*side
	wr       [1]verbs.SendWR
	rwr      [1]verbs.RecvWR
	wc       [16]verbs.WC
	word     [8]byte
	sent     uint64
	received uint64
}

func newPinger(t testing.TB, op verbs.Opcode, own, peer *side) *pinger {
	p := &pinger{side: own}
	p.wr[0] = verbs.SendWR{Opcode: op, Inline: p.word[:]}
	p.rwr[0] = verbs.RecvWR{ID: 1 << 63, SGList: []verbs.SGE{own.mr.Slice(0, 8)}}
	if op == verbs.OpWrite {
		p.wr[0].Remote = peer.mr.RemoteAt(0)
	} else {
		for range 32 { // more than one acknowledgement stands for: there are credits always
			check(t, own.qp.PostRecv(p.rwr[:]...))
		}
	}
	return p
}

func (p *pinger) send() {
	p.sent++
	binary.NativeEndian.PutUint64(p.word[:], p.sent)
	p.wr[0].ID, p.wr[0].Signaled = p.sent, p.sent%8 == 0
	p.fail(p.qp.PostSend(p.wr[:]...))
}

// await waits for the next message.
func (p *pinger) await() {
	want := p.received + 1
	for p.received < want {
		n := p.cq.Poll(p.wc[:])
		for i := range p.wc[:n] {
			p.fail(p.wc[i].Err())
			if p.wc[i].ID == p.rwr[0].ID {
				p.received++
			}
		}
		if p.wr[0].Opcode != verbs.OpWrite {
			continue
		}
		v, err := p.mr.Load64(0)
		p.fail(err)
		p.received = v
	}
	if p.wr[0].Opcode != verbs.OpWrite {
		p.fail(p.qp.PostRecv(p.rwr[:]...))
	}
}

// fail ends the benchmark with an error. (T.Helper, which check calls, takes
// longer than all that is measured here.)
func (p *pinger) fail(err error) {
	if err != nil {
		p.t.Fatal(err)
	}
}

// memoryPair makes two devices that one goroutine can drive.
func memoryPair(t testing.TB, cfg verbs.Config) (a, b *side) {
	t.Helper()
	la, lb := newMemoryLink(addrA), newMemoryLink(addrB)
	la.peer, lb.peer = lb, la
	var sides [2]*side
	for i, l := range []*memoryLink{la, lb} {
		dev, err := verbs.OpenLink(l, cfg)
		check(t, err)
		t.Cleanup(func() { check(t, dev.Close()) })
		sides[i] = newSide(t, dev, 4096)
	}
	connect(t, sides[0].qp, sides[1].qp)
	return sides[0], sides[1]
}

// memoryLink is a link to another one of the same process. It seals, copies
// and checks, as a link of sockets does, and nothing else. It holds a few
// packets.
type memoryLink struct {
	addr     netip.Addr
	peer     *memoryLink
	verifier *transport.Verifier
	wake     chan struct{}
	done     chan struct{}
	waits    atomic.Bool
	stats    transport.LinkCounters

	head, tail atomic.Uint32
	lens       [memorySlots]int
	slots      [memorySlots][256]byte
}

const memorySlots = 64

func newMemoryLink(addr netip.Addr) *memoryLink {
	return &memoryLink{
		addr: addr, verifier: transport.NewVerifier(netip.AddrPortFrom(addr, rocev2.UDPPort)),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

func (l *memoryLink) Addr() netip.Addr { return l.addr }

func (l *memoryLink) Capabilities() transport.Capabilities {
	return transport.Capabilities{MTU: rocev2.MTU4096, LinkMTU: 9000, Port: rocev2.UDPPort, RecvBuffer: 1 << 20}
}

func (l *memoryLink) Wait() error {
	l.waits.Store(true)
	defer l.waits.Store(false)
	if l.head.Load() != l.tail.Load() {
		return nil
	}
	select {
	case <-l.wake:
		return nil
	case <-l.done:
		return transport.ErrClosed
	}
}

func (l *memoryLink) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *memoryLink) Recv(b *transport.RxBatch) (int, error) {
	b.Reset()
	select {
	case <-l.done:
		return 0, transport.ErrClosed
	default:
	}
	head, tail := l.head.Load(), l.tail.Load()
	if head == tail {
		return 0, nil
	}
	for ; head != tail; head++ {
		at := head % memorySlots
		data := b.Copy(l.slots[at][:l.lens[at]])
		b.Split(data, 0, transport.RxPacket{Src: l.peer.addr, Dst: l.addr, SrcPort: rocev2.UDPPort, HopLimit: 64}, l.verifier)
	}
	l.head.Store(head)
	l.stats.Received(b, b.Len(), 0)
	return b.Len(), nil
}

func (l *memoryLink) Send(b *transport.TxBatch) error {
	to := l.peer
	for i := range b.Len() {
		r := b.Run(i, false)
		b.Seal(&r, netip.AddrPortFrom(l.addr, rocev2.UDPPort))
		tail := to.tail.Load()
		if tail-to.head.Load() == memorySlots {
			continue // lost
		}
		at := tail % memorySlots
		to.lens[at] = copy(to.slots[at][:], r.Data)
		to.tail.Store(tail + 1)
	}
	if to.waits.Load() {
		to.Wake()
	}
	l.stats.Sent(b.Len(), b.Len(), b.Bytes())
	return nil
}

func (l *memoryLink) Close() error {
	close(l.done)
	return nil
}

func (l *memoryLink) Stats() transport.LinkStats { return l.stats.Load() }
