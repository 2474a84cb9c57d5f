package hca

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// placingLink receives payloads where they belong, and is attacked: packets
// that are damaged or forged lie among those of a message.
type placingLink struct {
	transport.Link
	placer transport.Placer
	rng    *rand.Rand
	placed atomic.Int64  // packets
	some   chan struct{} // something is being placed
}

func newPlacingLink(l transport.Link, seed uint64) *placingLink {
	return &placingLink{Link: l, rng: rand.New(rand.NewPCG(seed, 0)), some: make(chan struct{}, 1)}
}

func (l *placingLink) SetPlacer(p transport.Placer) { l.placer = p }

func (l *placingLink) Recv(b *transport.RxBatch) (int, error) {
	if n, err := l.Link.Recv(b); n == 0 || err != nil {
		return n, err
	}
	packets, n := b.Packets(), 0
	for range 4 {
		whole, used := l.place(b, packets[n:])
		if n += used; !whole || n == len(packets) {
			break
		}
	}
	i := 0
	b.Filter(func(*transport.RxPacket) bool { i++; return i > n })
	return b.Len(), nil
}

// place puts the payloads of the first packets where they belong, and after
// them what a forger has sent.
func (l *placingLink) place(b *transport.RxBatch, packets []transport.RxPacket) (whole bool, used int) {
	packets = packets[:min(len(packets), 1+l.rng.IntN(16))]
	first := packets[0]
	size := len(first.Data) - rocev2.BTHLen - rocev2.ICRCLen
	if size <= 0 {
		return false, 0
	}
	head := (*[rocev2.BTHLen]byte)(first.Data)
	payload := l.placer.Place(netip.AddrPortFrom(first.Src, first.SrcPort), head, size, len(packets))
	if len(payload) == 0 {
		return false, 0
	}
	defer l.placer.Placed()
	select {
	case l.some <- struct{}{}:
	default:
	}
	n, want := len(payload)/size, *head
	genuine := n - max(0, l.rng.IntN(8)-4)
	for i := range n {
		to, p := payload[i*size:(i+1)*size], packets[i].Data
		binary.BigEndian.PutUint32(want[8:], binary.BigEndian.Uint32(head[8:])+uint32(i))
		if i < genuine && len(p) == len(first.Data) && bytes.Equal(p[:rocev2.BTHLen], want[:]) {
			copy(to, p[rocev2.BTHLen:])
			used++
			continue
		}
		genuine = 0
		copy(to, bytes.Repeat([]byte{0xee}, size))
	}
	if used > 0 {
		b.AppendPlaced(transport.PlacedRun{First: first, N: used, Payload: payload[:used*size]})
		l.placed.Add(int64(used))
	}
	return used == n, used
}

// newPlacing makes two hosts, of which the second one has a placingLink.
func newPlacing(t *testing.T, seed uint64) (a, b *host, l *placingLink) {
	t.Helper()
	la, lb := fabric.Pair(testAddrA, testAddrB, fabric.Config{})
	l = newPlacingLink(lb, seed)
	a, b = &host{t: t, dev: New(Config{}, la)}, &host{t: t, dev: New(Config{}, l)}
	a.equip()
	b.equip()
	return a, b, l
}

// pair connects a queue pair of h with one of to.
func (h *host) pair(to *host) (a, b *QP) {
	h.t.Helper()
	a, b = h.newQP(), to.newQP()
	h.connectVia(a, ib.AddressVector{DGID: to.dev.Addr(), HopLimit: 64, Native: true}, b.QPN())
	to.connectVia(b, ib.AddressVector{DGID: h.dev.Addr(), HopLimit: 64, Native: true}, a.QPN())
	return a, b
}

// register makes a region that peers may write to.
func (h *host) register(n int) ([]byte, *MR) {
	h.t.Helper()
	mem := make([]byte, n)
	mr, err := h.pd.Register(memreg.Local(mem), memreg.Options{Access: ib.LocalWrite | ib.RemoteWrite}, nil)
	h.must(err)
	return mem, mr
}

// writes sends WRITEs, and looks that they arrive and nothing else of the
// peer's memory changes.
func (h *host) writes(q *QP, to *host, rng *rand.Rand, rounds int) {
	h.t.Helper()
	from, local := h.register(1 << 20)
	mem, remote := to.register(1 << 20)
	for range rounds {
		for i := 0; i < len(from); i += 8 {
			binary.NativeEndian.PutUint64(from[i:], rng.Uint64())
		}
		want := to.cloned(mem)
		n := 1<<17 + rng.IntN(1<<18)
		at := rng.IntN(len(from) - n)
		copy(want[at:], from[at:at+n])
		_, err := q.PostSend([]ib.SendWR{{Opcode: ib.OpWrite, Signaled: true, SGList: []ib.SGE{local.Region().SGE(uint64(at), uint32(n))},
			Remote: ib.RemoteAddr{Addr: remote.Region().Addr() + uint64(at), RKey: remote.Region().RKey()}}})
		h.must(err)
		h.waitOK(1)
		if !to.has(mem, want) {
			h.t.Fatalf("a WRITE of %d bytes at %d: not what was sent, or something beside it has changed", n, at)
		}
	}
}

// cloned copies memory that the device may write. A socket between two devices
// orders nothing for -race, so it takes the shard's lock.
func (h *host) cloned(mem []byte) []byte {
	h.shard().mu.Lock()
	defer h.shard().mu.Unlock()
	return bytes.Clone(mem)
}

// has compares memory in the same way.
func (h *host) has(mem, want []byte) bool {
	h.shard().mu.Lock()
	defer h.shard().mu.Unlock()
	return bytes.Equal(mem, want)
}

// A WRITE arrives as it was sent, whatever was placed among its packets, and
// nothing beside its range changes.
func TestPlacedUnderAttack(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		a, b, l := newPlacing(t, seed)
		qa, _ := a.pair(b)
		a.writes(qa, b, rand.New(rand.NewPCG(seed, 1)), 8)
		if l.placed.Load() == 0 {
			t.Error("nothing was placed")
		}
	}
}

// What the program has got back is not touched any more, although a WRITE to
// it was being placed. With -race nothing reads it either.
func TestPlacedMemoryIsReturned(t *testing.T) {
	t.Parallel()
	for name, giveBack := range map[string]func(h *host, q *QP, mr *MR){
		"error":      func(h *host, q *QP, _ *MR) { h.must(q.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState)) },
		"reset":      func(h *host, q *QP, _ *MR) { h.must(q.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState)) },
		"close":      func(h *host, q *QP, _ *MR) { h.must(q.Close()) },
		"deregister": func(h *host, _ *QP, mr *MR) { h.must(mr.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, l := newPlacing(t, 7)
			other, _ := a.pair(b)
			mine := bytes.Repeat([]byte{0x77}, 1<<20)
			for range 20 {
				qa, qb := a.pair(b)
				mem, mr := b.register(1 << 20)
				select {
				case <-l.some:
				default:
				}
				for range 4 {
					_, err := qa.PostSend([]ib.SendWR{{Opcode: ib.OpWrite, SGList: []ib.SGE{a.mr.Region().SGE(0, 1<<20)},
						Remote: ib.RemoteAddr{Addr: mr.Region().Addr(), RKey: mr.Region().RKey()}}})
					a.must(err)
				}
				<-l.some
				giveBack(b, qb, mr)
				copy(mem, mine)
				a.must(qa.Close())
				a.drainCQ()
				a.write(other, b, 1<<17) // after all that was on the way
				a.waitOK(1)
				if !b.has(mem, mine) {
					t.Fatal("memory was written after the program had it back")
				}
				b.must(qb.Close())
				b.must(mr.Close())
			}
		})
	}
}

// drainCQ takes the completions that there are.
func (h *host) drainCQ() {
	var wc [64]ib.WC
	for h.cq.Poll(wc[:]) > 0 {
	}
}

// Nothing is placed while queue pairs of several domains are on a device. The
// management queue pair does not count.
func TestPlacingInOneDomain(t *testing.T) {
	t.Parallel()
	_, b := newHosts(t, Config{})
	several := func(want bool, when string) {
		t.Helper()
		if got := b.dev.domains.several.Load(); got != want {
			t.Errorf("%s: several domains %v", when, got)
		}
	}
	create := func(c qp.Config) *QP {
		pd, err := b.owner.AllocPD()
		b.must(err)
		c.PD, c.SendCQ, c.RecvCQ, c.MaxSendWR, c.MaxRecvWR = pd.Core(), b.cq, b.cq, 1, 1
		q, err := b.owner.CreateQP(c)
		b.must(err)
		return q
	}
	first := b.newQP()
	b.newQP()
	several(false, "two queue pairs of one domain")
	create(qp.Config{Type: ib.GSI})
	several(false, "beside the management queue pair")
	ud := create(qp.Config{Type: ib.UD})
	several(true, "beside one of another domain")
	b.must(first.Close())
	several(true, "with one of each")
	b.must(ud.Close())
	several(false, "without the other domain")
}

// The placer checks in which domains the queue pairs are.
func TestNothingPlacedBesideOthers(t *testing.T) {
	t.Parallel()
	a, b, l := newPlacing(t, 9)
	qa, _ := a.pair(b)
	pd, err := b.owner.AllocPD()
	b.must(err)
	_, err = b.owner.CreateQP(qp.Config{PD: pd.Core(), SendCQ: b.cq, RecvCQ: b.cq, MaxSendWR: 1, MaxRecvWR: 1})
	b.must(err)
	a.writes(qa, b, rand.New(rand.NewPCG(9, 1)), 2)
	if n := l.placed.Load(); n != 0 {
		t.Errorf("%d packets were placed beside a queue pair of another domain", n)
	}
}
