package cm

import (
	"math/rand/v2"
	"testing"
)

// wanted counts what an owner is asked for.
type wanted struct{ reserved, released int }

func (a *wanted) ReserveService(_, _ uint64) error { a.reserved++; return nil }
func (a *wanted) ReleaseService(_, _ uint64)       { a.released++ }

// Ports to dial from are a lease's own: the owner is not asked. It is when all
// are in use, and for a certain port.
func TestPortsToDialFrom(t *testing.T) {
	t.Parallel()
	const slots, slot = 256, 77
	var owner wanted
	p := newPorts(rand.New(rand.NewPCG(1, 2)).Uint32, &owner, part{slot, slots})
	taken := map[uint16]bool{}
	take := func(port uint16) uint16 {
		got, err := p.takeSource(TCP, port)
		if err != nil || taken[got] {
			t.Fatalf("port %d, %v", got, err)
		}
		taken[got] = true
		return got
	}
	const own = (1<<16 - firstEphemeral) / slots
	for range own {
		if got := take(0); got < firstEphemeral || got%slots != slot {
			t.Errorf("port %d is not of slot %d", got, slot)
		}
	}
	if owner != (wanted{}) {
		t.Errorf("%+v", owner)
	}
	take(0)
	take(7000)
	if owner != (wanted{reserved: 2}) {
		t.Errorf("%+v; want two ports reserved", owner)
	}
	for port := range taken {
		if _, err := p.take(TCP, port, true); err == nil {
			t.Errorf("port %d is had twice", port)
		}
		p.give(TCP, port)
	}
	if len(p.used) != 0 || owner != (wanted{2, 2}) {
		t.Errorf("%+v, and %d ports are in use", owner, len(p.used))
	}
	for range own { // a listener is to be found
		if _, err := p.take(TCP, 0, false); err != nil {
			t.Fatal(err)
		}
	}
	if owner != (wanted{2 + own, 2}) {
		t.Errorf("%+v", owner)
	}
}

// slow is an owner that answers when it is told to.
type slow struct {
	asked  chan uint64
	answer chan error
}

func (s slow) ReserveService(id, _ uint64) error { s.asked <- id; return <-s.answer }
func (s slow) ReleaseService(_, _ uint64)        {}

// A port, be it a certain one or any, is not shared before the owner has said
// whether it can be had: it is taken with the lock that is needed to share it.
func TestPortIsSharedWhenItIsReserved(t *testing.T) {
	t.Parallel()
	for _, first := range []uint16{0, 7000} {
		owner := slow{make(chan uint64), make(chan error)}
		p := newPorts(rand.New(rand.NewPCG(1, 2)).Uint32, owner, part{1, 8})
		got := make(chan error)
		go func() {
			_, err := p.take(TCP, first, true)
			got <- err
		}()
		port := uint16(<-owner.asked)
		if p.reserving.TryLock() {
			t.Errorf("port %d may be shared before it is reserved", port)
			p.reserving.Unlock()
		}
		owner.answer <- nil
		if err := <-got; err != nil {
			t.Error(err)
		}
		if _, err := p.take(TCP, port, true); err != nil { // without asking
			t.Error(err)
		}
	}
}
