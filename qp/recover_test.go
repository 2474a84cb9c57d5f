package qp

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// TestOneCut: the losses among the packets of one window, when they are sent
// again too, cut the send window once; the next one cuts it again, and so does
// every timeout (RFC 5681, section 3.1).
func TestOneCut(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{attr: ib.Attr{RetryCount: 7}})
	drop := map[rocev2.PSN]int{0: 1, 5: 2, 27: 1} // PSN to the number of transmissions that are lost
	p.drop = func(from *testEnd, pkt *rocev2.Packet) bool {
		if from != p.a || drop[pkt.BTH.PSN] == 0 {
			return false
		}
		drop[pkt.BTH.PSN]--
		return true
	}
	post := func() {
		for range 10 {
			must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 3000), Remote: p.b.remote(0)}))
		}
		p.settle()
	}
	post()
	// 0 is lost, then 5 twice; nothing follows 27, so a timeout repairs it.
	if s := p.a.Stats(); s.SendDone != 10 || s.Restarts != 2 || s.Timeouts != 1 || s.WindowCuts != 2 {
		t.Errorf("%d done, %d restarts, %d timeouts, %d cuts", s.SendDone, s.Restarts, s.Timeouts, s.WindowCuts)
	}
	drop[35] = 1
	post()
	if s := p.a.Stats(); s.SendDone != 20 || s.Restarts != 3 || s.WindowCuts != 3 {
		t.Errorf("the next window: %d done, %d restarts, %d cuts", s.SendDone, s.Restarts, s.WindowCuts)
	}
}

// TestResponsesBehindALoss: whatever the number of READ responses after a lost
// one, they cost one retry and a bounded number of requests (IBTA 9.7.6.1).
func TestResponsesBehindALoss(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{attr: ib.Attr{RetryCount: 1}})
	p.drop = func(*testEnd, *rocev2.Packet) bool { return true }
	for range 4 {
		must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpRead, SGList: p.a.sge(0, 1024), Remote: p.b.remote(0)}))
	}
	late, early := packet(rocev2.RCReadResponseOnly, 1), packet(rocev2.RCReadResponseOnly, 0)
	late.Payload, early.Payload = make([]byte, 1024), make([]byte, 1024)
	for range 100 {
		p.run()
		p.inject(p.a, late)
		p.inject(p.a, late)
		p.inject(p.a, early)
		p.inject(p.a, late)
	}
	if s := p.a.Stats(); p.a.State() != ib.StateRTS || s.Restarts != maxRestarts || p.a.halves.req.Snapshot().RetriesLeft != 0 {
		t.Errorf("state %v, %d restarts, %d retries left", p.a.State(), s.Restarts, p.a.halves.req.Snapshot().RetriesLeft)
	}
}
