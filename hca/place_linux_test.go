package hca

import (
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// spyLink is a link of its own kind whose placer is looked at.
type spyLink struct {
	*udp.Link
	t      *testing.T
	placed atomic.Int64
}

type spyPlacer struct {
	*placer
	l *spyLink
}

func (l *spyLink) SetPlacer(p transport.Placer) {
	if to, ok := any(l.Link).(transport.PlacingLink); ok {
		to.SetPlacer(spyPlacer{p.(*placer), l})
	}
}

// While a place is written the shard is locked and the memory pinned.
func (p spyPlacer) Placed() {
	p.l.placed.Add(1)
	if p.s.mu.TryLock() {
		p.l.t.Error("a place is written without the lock of the shard")
		p.s.mu.Unlock()
	}
	if p.view.Region() == nil {
		p.l.t.Error("a place is written that is not pinned")
	}
	p.placer.Placed()
}

// damaging is a link that damages packets and sends some batches twice.
type damaging struct {
	transport.Link
	rng *rand.Rand
}

func (l damaging) Send(b *transport.TxBatch) error {
	twice := l.rng.IntN(16) == 0
	for i := range b.Len() {
		if l.rng.IntN(300) == 0 {
			b.Damage(i, 0x10)
		}
	}
	if twice {
		if err := l.Link.Send(b); err != nil {
			return err
		}
	}
	return l.Link.Send(b)
}

// The same over sockets: WRITEs arrive whole, although packets among them are
// damaged and sent again, and batches arrive twice.
func TestPlacedOverSockets(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
	open := func() *udp.Link {
		addr := netip.AddrFrom4([4]byte{127, byte(2 + rng.IntN(200)), byte(rng.IntN(256)), byte(2 + rng.IntN(200))})
		l, err := udp.Open(addr, udp.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	la, spy := open(), &spyLink{Link: open(), t: t}
	a, b := &host{t: t, dev: New(Config{}, damaging{la, rng})}, &host{t: t, dev: New(Config{}, spy)}
	a.equip()
	b.equip()
	a.mtu, b.mtu = rocev2.MTU4096, rocev2.MTU4096
	qa, _ := a.pair(b)
	a.writes(qa, b, rand.New(rand.NewPCG(3, 0)), 150)
	t.Logf("%d buffers were placed", spy.placed.Load())
}
