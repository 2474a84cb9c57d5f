package hca

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/transport"
)

// mute is a second link of an address at which nothing arrives: as when all
// packets were coalesced into buffers that belong to the first one.
type mute struct {
	transport.Link
	send   *sync.Mutex
	closed chan struct{}
}

func (m mute) Send(b *transport.TxBatch) error {
	m.send.Lock()
	defer m.send.Unlock()
	return m.Link.Send(b)
}

func (m mute) Wait() error                          { <-m.closed; return transport.ErrClosed }
func (m mute) Wake()                                {}
func (m mute) Recv(*transport.RxBatch) (int, error) { return 0, nil }
func (m mute) Close() error                         { close(m.closed); return nil }

// lockedLink serialises Send with that of mute.
type lockedLink struct {
	transport.Link
	send *sync.Mutex
}

func (l lockedLink) Send(b *transport.TxBatch) error {
	l.send.Lock()
	defer l.send.Unlock()
	return l.Link.Send(b)
}

// A packet that arrives at the wrong shard is forwarded to the right one.
func TestMisroutedPacketsAreForwarded(t *testing.T) {
	t.Parallel()
	la, lb := fabric.Pair(testAddrA, testAddrB)
	var mu sync.Mutex
	a := &host{t: t, dev: New(Config{}, lockedLink{la, &mu}, mute{la, &mu, make(chan struct{})})}
	b := &host{t: t, dev: New(Config{}, lb)}
	a.equip()
	b.equip()
	const qps = 20
	odd := 0
	made := 0
	for ; made < qps || odd == 0 || odd == made; made++ { // QPNs are random: of both shards
		qa, qb := a.newQP(), b.newQP()
		odd += int(qa.QPN()) & 1
		a.connect(qa, testAddrB, qb.QPN())
		b.connect(qb, testAddrA, qa.QPN())
		a.write(qa, b, 3000)
		// Each to a place of its own: nothing orders what different
		// shards do.
		_, err := qb.PostSend([]ib.SendWR{{Opcode: ib.OpWrite, Signaled: true, SGList: []ib.SGE{b.mr.Region().SGE(0, 3000)},
			Remote: ib.RemoteAddr{Addr: a.mr.Region().Addr() + uint64(4096*(1+made)), RKey: a.mr.Region().RKey()}}})
		b.must(err)
	}
	a.waitOK(made)
	b.waitOK(made)
	if drops := a.dev.Stats().Drops; drops["unknown_qpn"] != 0 {
		t.Errorf("packets did not find their queue pair: %v", drops)
	}
}

// Packets for another shard wait there up to a bound, and are counted beyond
// it; the shard is told once for all that wait. Much memory is not kept.
func TestForwardedPacketsAreBounded(t *testing.T) {
	t.Parallel()
	var f forwarded
	data := make([]byte, 4096)
	const fits = maxForwarded / 4096
	for round := range 2 {
		for i := range fits + 10 {
			data[0] = byte(i)
			if told := f.add(&transport.RxPacket{Data: data, SrcPort: uint16(i)}); told != (i == 0) {
				t.Fatalf("round %d, packet %d: told %v", round, i, told)
			}
		}
		packets := f.take()
		if len(packets) != fits || f.drops() != uint64(10*(round+1)) {
			t.Fatalf("round %d: %d packets, %d were lost", round, len(packets), f.drops())
		}
		for i, p := range packets {
			if p.Data[0] != byte(i) || len(p.Data) != 4096 || p.SrcPort != uint16(i) {
				t.Fatalf("packet %d is another", i)
			}
		}
		f.done()
		if f.take() != nil {
			t.Error("taken twice")
		}
	}
	for range maxForwardedPackets + 10 {
		f.put(&transport.RxPacket{Data: data[:8]})
	}
	if n := len(f.take()); n != maxForwardedPackets || f.drops() != 30 {
		t.Errorf("%d small packets, %d were lost", n, f.drops())
	}
	f.done()
	if n := cap(f.taken.bytes) + cap(f.waiting.bytes); n > 2*keepForwarded {
		t.Errorf("%d bytes are kept", n)
	}
	if n := cap(f.taken.packets) + cap(f.waiting.packets); n > 2*keepForwardedPackets {
		t.Errorf("room for %d packets is kept", n)
	}
}

// No system call is made under a shard's lock: a program that blocks in the
// link is woken, and packets are sent and received, without it.
func TestNoSystemCallUnderTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &meddler{}
		a, b := newMeddled(t, Config{}, m)
		calls := map[string]int{}
		free := func(what string) func() {
			return func() {
				calls[what]++
				if !a.shard().mu.TryLock() {
					t.Errorf("%s with the lock held", what)
					return
				}
				a.shard().mu.Unlock()
			}
		}
		qa, qb := a.newQP(), b.newQP()
		a.connect(qa, testAddrB, qb.QPN())
		b.connect(qb, testAddrA, qa.QPN())
		failed := a.newQP()
		a.connect(failed, testAddrB, 77)
		a.must(failed.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
		a.standBy()
		waited := make(chan int)
		go func() {
			var wc [4]ib.WC
			n, _ := a.cq.Wait(t.Context(), wc[:])
			waited <- n
		}()
		synctest.Wait() // it blocks in the link
		m.waking, m.sending, m.received = free("Wake"), free("Send"), func(*transport.RxBatch) { free("Recv")() }
		_, err := failed.PostRecv([]ib.RecvWR{{ID: 1}}) // completes at once
		a.must(err)
		if n := <-waited; n != 1 {
			t.Errorf("%d completions", n)
		}
		a.write(qa, b, 100000)
		a.waitOK(1)
		for _, what := range []string{"Wake", "Send", "Recv"} {
			if calls[what] == 0 {
				t.Errorf("%s was not called", what)
			}
		}
	})
}
