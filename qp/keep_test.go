package qp

import (
	"bytes"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
)

// keepers is a pair that keeps packets in stores of a size.
func keepers(t *testing.T, c pairConfig, packets int) *pair {
	p := newPair(t, c)
	p.a.KeepPackets(NewStore(packets))
	p.b.KeepPackets(NewStore(packets))
	return p
}

// dropNth loses the nth packets that a side sends, the first being 1.
func (p *pair) dropNth(from *testEnd, nth ...int) {
	n := 0
	p.drop = func(e *testEnd, _ *rocev2.Packet) bool {
		if e != from {
			return false
		}
		n++
		for _, k := range nth {
			if k == n {
				return true
			}
		}
		return false
	}
}

// held counts the packets that a store has given away.
func (s *Store) held(limit int) int {
	n := limit - s.left
	for k := s.free; k != nil; k = k.next {
		n--
	}
	return n
}

// TestRepairCost: a lost packet costs a few, not all that is in flight behind it, in both directions.
func TestRepairCost(t *testing.T) {
	t.Parallel()
	for _, op := range []WROpcode{OpWrite, OpRead} {
		p := keepers(t, pairConfig{}, 256)
		if op == OpWrite {
			p.dropNth(p.a, 5)
		} else {
			p.dropNth(p.b, 5)
		}
		must(t, p.a.PostSend(0, &SendWR{ID: 1, Opcode: op, Signaled: true, SGList: p.a.sge(0, 1<<17), Remote: p.b.remote(0)}))
		p.settle()
		if !bytes.Equal(p.a.mem[:1<<17], p.b.mem[:1<<17]) {
			t.Errorf("%v: wrong data", op)
		}
		a, b := p.a.Stats(), p.b.Stats()
		if a.SendDone != 1 || a.Repairs != 1 || a.Retransmits > repairRun || a.Kept+b.Kept < 8 || a.Timeouts+a.Probes > 0 {
			t.Errorf("%v: %d done, %d repairs, %d packets again, %d and %d kept", op, a.SendDone, a.Repairs, a.Retransmits, a.Kept, b.Kept)
		}
		if n := b.TxPackets; op == OpRead && n > 128+2*2 {
			t.Errorf("READ: %d responses for 128 packets", n)
		}
		if p.a.store.held(256) != 0 || p.b.store.held(256) != 0 {
			t.Errorf("%v: packets are held and all is done", op)
		}
	}
}

// TestStoreIsGivenBack: whatever ends a queue pair, its packets go back, and so they do when another store is named.
func TestStoreIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(e *testEnd){
		"close": func(e *testEnd) { e.Close(0) },
		"error": func(e *testEnd) { must(t, e.Modify(0, &Attr{State: StateErr}, AttrState)) },
		"reset": func(e *testEnd) { must(t, e.Modify(0, &Attr{State: StateReset}, AttrState)) },
		"store": func(e *testEnd) { e.KeepPackets(nil) },
	} {
		p := keepers(t, pairConfig{}, 64)
		p.drop = func(from *testEnd, pkt *rocev2.Packet) bool { return from == p.a && pkt.BTH.PSN == 0xffffff }
		must(t, p.a.PostSend(0, &SendWR{Opcode: OpWrite, SGList: p.a.sge(0, 1<<14), Remote: p.b.remote(0)}))
		p.run()
		s := p.b.store
		if s.held(64) == 0 {
			t.Fatal("nothing was kept")
		}
		end(p.b)
		if n := s.held(64); n != 0 {
			t.Errorf("%s: %d packets are held", name, n)
		}
	}
}

// TestKeepBounds: packets far ahead, more than fit, and one that is there already are not kept; their order does not
// matter.
func TestKeepBounds(t *testing.T) {
	t.Parallel()
	p := keepers(t, pairConfig{}, 4)
	e := p.b.resp.epsn
	in := func(ahead int) Drop {
		pkt := packet(rocev2.RCSendOnly, e.Add(ahead))
		pkt.BTH.DestQPN, pkt.BTH.PKey = p.b.QPN(), rocev2.DefaultPKey
		return p.b.HandlePacket(0, p.a.addr, &pkt)
	}
	for _, c := range []struct {
		ahead int
		want  Drop
	}{{5, DropNone}, {5, DropOutOfOrder}, {2, DropNone}, {9, DropNone}, {2, DropOutOfOrder}, {maxKeptAhead + 1, DropOutOfOrder},
		{3, DropNone}, {4, DropOutOfOrder}} {
		if got := in(c.ahead); got != c.want {
			t.Errorf("packet %d ahead: %v, want %v", c.ahead, got, c.want)
		}
	}
	var order []int
	for k := p.b.resp.kept.first; k != nil; k = k.next {
		order = append(order, k.packet.BTH.PSN.Sub(e))
	}
	if len(order) != 4 || order[0] != 2 || order[1] != 3 || order[2] != 5 || order[3] != 9 || p.b.resp.kept.last.next != nil {
		t.Errorf("kept %v", order)
	}
}
