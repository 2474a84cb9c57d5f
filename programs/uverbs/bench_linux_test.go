package uverbs

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
	"github.com/gosoftroce/rocev2/qp"
)

// looped makes two connected queue pairs of one device, whose packets pass
// inside of it.
func looped(t testing.TB) (p *app, a, b *appQP) {
	link, _ := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	d := &Device{Dev: hca.New(hca.Config{Loopback: true}, link), Requests: new(Requests)}
	t.Cleanup(func() { d.Dev.Close() })
	p = start(t, d)
	a, b = p.newQP(options{depth: 63, data: 64}), p.newQP(options{depth: 63, data: 64})
	a.connect(b)
	b.connect(a)
	return p, a, b
}

// BenchmarkWrite posts WRITEs of 8 bytes and polls for their completions:
// through the rings, and as a Go program of the device does.
func BenchmarkWrite(b *testing.B) {
	b.Run("rings", func(b *testing.B) { benchRings(b, 1) })
	b.Run("rings, 16 at once", func(b *testing.B) { benchRings(b, 16) })
	b.Run("rings, as many as wait for each other", func(b *testing.B) { benchRings(b, mostGathered) })
	b.Run("hca", benchDirect)
}

func benchRings(b *testing.B, n int) {
	p, a, _ := looped(b)
	at, key := p.remote(4096)
	w := fake.SendWR{Opcode: fake.Write, Flags: fake.Signaled, SGE: []ib.SGE{p.sge(0, 8)}, Remote: at, RKey: key}
	b.ReportAllocs()
	for i := 0; i < b.N; i += n {
		for range n {
			a.send.PostSend(w)
		}
		a.Serve()
		for got := 0; got < n; {
			if c, ok := a.cq.Poll(); ok {
				if c.Status != ib.StatusSuccess {
					b.Fatal(c)
				}
				got++
			} else {
				runtime.Gosched()
			}
		}
	}
}

// BenchmarkSend posts receives, then SENDs of 8 bytes to them, and polls for
// both completions.
func BenchmarkSend(b *testing.B) {
	p, from, to := looped(b)
	w := fake.SendWR{Opcode: fake.Send, Flags: fake.Signaled, SGE: []ib.SGE{p.sge(0, 8)}}
	list := []ib.SGE{p.sge(64, 8)}
	b.ReportAllocs()
	for i := 0; i < b.N; i += mostGathered {
		for range mostGathered {
			to.recv.PostRecv(1, list...)
			from.send.PostSend(w)
		}
		from.Serve()
		for _, q := range []*appQP{from, to} {
			for got := 0; got < mostGathered; {
				c, ok := q.cq.Poll()
				switch {
				case !ok:
					runtime.Gosched()
				case c.Status != ib.StatusSuccess:
					b.Fatal(c)
				default:
					got++
				}
			}
		}
	}
}

func benchDirect(b *testing.B) {
	p, _, _ := looped(b)
	own, pd := p.c.ctx, p.c.protection.domains.get(p.pd).core
	cq, err := own.CreateCQ(64, nil)
	p.must(err)
	config := qp.Config{PD: pd.Core(), SendCQ: cq, RecvCQ: cq, MaxSendWR: 16, MaxRecvWR: 16}
	var qps [2]*hca.QP
	for i := range qps {
		qps[i], err = own.CreateQP(config)
		p.must(err)
	}
	for i, q := range qps {
		peer := &appQP{p: p, typ: ib.RC}
		peer.Qpn = uint32(qps[1-i].QPN())
		for _, step := range peer.steps(peer) {
			attr, errno := attrOf(&step)
			if errno != 0 {
				b.Fatal(errno)
			}
			p.must(q.Modify(attr, ib.AttrMask(step.AttrMask)))
		}
	}
	at, key := p.remote(4096)
	wrs := []ib.SendWR{{Opcode: ib.OpWrite, Signaled: true, SGList: []ib.SGE{p.sge(0, 8)}, Remote: ib.RemoteAddr{Addr: at, RKey: ib.Key(key)}}}
	var wc [16]ib.WC
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := qps[0].PostSend(wrs); err != nil {
			b.Fatal(err)
		}
		for cq.Poll(wc[:]) == 0 {
			runtime.Gosched()
		}
	}
}

// Nothing on the way of a request allocates.
func TestDoesNotAllocate(t *testing.T) { // not parallel: it counts allocations
	p, a, b := looped(t)
	at, key := p.remote(4096)
	list := []ib.SGE{p.sge(0, 8)}
	round := func() {
		b.recv.PostRecv(1, list...)
		a.send.PostSend(fake.SendWR{Opcode: fake.Write, Flags: fake.Signaled, SGE: list, Remote: at, RKey: key})
		a.send.PostSend(fake.SendWR{Opcode: fake.Send, Flags: fake.Signaled | fake.Inline, Data: p.buf[:8]})
		a.Serve()
		for _, q := range []*appQP{a, a, b} {
			for _, ok := q.cq.Poll(); !ok; _, ok = q.cq.Poll() {
				runtime.Gosched()
			}
		}
	}
	for range 100 {
		round()
	}
	if n := testing.AllocsPerRun(200, round); n > 0 {
		t.Errorf("a SEND and a WRITE allocate %v times", n)
	}
}
