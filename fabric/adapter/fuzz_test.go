package adapter

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/cores"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// player plays what fuzzed bytes say: programs that connect, post, close, and
// cables that fail. Each request completes exactly once, whatever happens.
type player struct {
	t                    *testing.T
	a                    *Adapters
	in                   []byte
	qps                  []*QP
	posted, done, failed atomic.Int64 // parts of the network count at the same time
}

func (p *player) next() int {
	if len(p.in) == 0 {
		return 0
	}
	b := p.in[0]
	p.in = p.in[1:]
	return int(b)
}

const fuzzHosts = 4

var fuzzOps = [...]ib.Opcode{0, ib.OpWrite, ib.OpSend, ib.OpRead, ib.OpWriteImm, ib.OpSendImm, ib.OpFetchAdd, ib.OpCompareSwap, ib.OpFlush, ib.OpSendInv}

// post posts a request, and perhaps another when it has completed.
func (p *player) post(q *QP, op ib.Opcode, bytes uint32, again int) {
	p.posted.Add(1)
	err := q.Post(Request{Op: op, Bytes: bytes, Done: func(c Completion) {
		if p.done.Add(1); c.Status != ib.StatusSuccess {
			p.failed.Add(1)
		}
		if c.QP != q || c.End < c.Start {
			p.t.Fatalf("%+v", c)
		}
		if again > 0 {
			p.post(q, op, bytes, again-1)
		}
	}})
	if err != nil {
		p.posted.Add(-1)
	}
}

func (p *player) step() {
	switch what, arg := p.next(), p.next(); what % 8 {
	case 0:
		x, y, err := p.a.Connect(arg%fuzzHosts, arg/fuzzHosts%fuzzHosts, Connection{Foreign: what&8 != 0, Retries: what >> 4 & 3,
			Timeout: uint8(arg >> 4 & 7), MTU: rocev2.MTU(arg % 6), Depth: what >> 6, TrafficClass: uint8(arg), RdAtomic: 1 + what>>5})
		if err == nil {
			p.qps = append(p.qps, x, y)
		}
	case 1, 2, 3:
		if len(p.qps) > 0 {
			p.post(p.qps[arg%len(p.qps)], fuzzOps[what>>3%len(fuzzOps)], uint32(p.next())<<(what>>5), p.next()%4)
		}
	case 4:
		if len(p.qps) > 0 && what&16 != 0 {
			p.qps[arg%len(p.qps)].Close()
		}
	case 5:
		p.a.Network().SetCable(arg%fuzzHosts, what&8 != 0)
	case 6:
		if len(p.qps) > 0 && what&16 != 0 {
			q := p.qps[arg%len(p.qps)]
			q.Received = func(m Message) { // an answer, of half as much
				if m.Bytes > 0 {
					p.post(q, ib.OpSend, m.Bytes/2, 0)
				}
			}
		}
	default:
		p.a.Network().Run(p.a.Now() + event.Time(arg*arg+1)*50*event.Nanosecond)
	}
}

func FuzzAdapters(f *testing.F) {
	f.Add([]byte{64, 4, 9, 0, 200, 1, 7, 3, 7, 255})
	f.Add([]byte{72, 1, 17, 1, 255, 2, 5, 0, 7, 200, 13, 0, 7, 255, 20, 0})
	f.Add([]byte{64, 9, 64, 12, 25, 0, 255, 3, 22, 1, 49, 2, 255, 3, 7, 50, 5, 2, 7, 255, 20, 3})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) <= 400 {
			one, parts := play(t, in, 1), play(t, in, 2+len(in)%3)
			if x, y := one.came(), parts.came(); x != y {
				t.Fatalf("%s, and in parts\n%s", x, y)
			}
		}
	})
}

// TestPlayers plays seeded bytes: requests complete with success and without,
// and the same happens in any number of parts.
func TestPlayers(t *testing.T) {
	t.Parallel()
	var done, failed, queuePairs int
	var lost uint64
	for seed := range uint64(200) {
		rng := event.NewRand(seed, 7)
		in := []byte{64, 4, 72, 9, 64, 3} // some connections
		for range 100 {
			in = append(in, byte(rng.Uint64()))
		}
		p := play(t, in, 1)
		parts := 2 + int(seed%4)
		if x, y := p.came(), play(t, in, parts).came(); x != y {
			t.Fatalf("seed %d: %s, and in %d parts\n%s", seed, x, parts, y)
		}
		done, failed, queuePairs = done+int(p.done.Load()), failed+int(p.failed.Load()), queuePairs+len(p.qps)
		totals := p.a.Network().Totals()
		lost += totals.Dropped()
	}
	t.Logf("%d queue pairs, %d requests have completed, %d of them in error, %d packets were lost", queuePairs, done, failed, lost)
	if failed < 50 || done-failed < 1000 || lost < 100 {
		t.Error("they do not meet everything")
	}
}

// came says what has come of it.
func (p *player) came() string {
	n := p.a.Network()
	return fmt.Sprintf("digest %x at %v: %+v %+v, %d posted, %d failed", n.Digest(), n.Now(), n.Totals(), p.a.Stats(), p.posted.Load(), p.failed.Load())
}

func play(t *testing.T, in []byte, parts int) *player {
	k := cores.New(parts)
	defer k.Close()
	sw := network.Switch{Buffer: 300_000}
	for i := range sw.Classes {
		sw.Classes[i] = network.Class{Lossless: i == 3, EgressMax: 60_000, RED: network.RED{Kmin: 20_000, Kmax: 50_000, Pmax: 500_000}}
	}
	p := &player{t: t, in: in, a: starOf(t, fuzzHosts, 1e6, sw, Config{Seed: uint64(len(in)), Window: qp.WindowConfig{MaxBytes: 128 << 10}}, parts, k.Do)}
	for len(p.in) > 0 {
		p.step()
		must(t, p.a.Network().Check())
	}
	for i := range fuzzHosts {
		p.a.Network().SetCable(i, true)
	}
	p.a.Network().Run(p.a.Now() + 100*event.Second)
	if done, posted := p.done.Load(), p.posted.Load(); done != posted {
		t.Fatalf("%d of %d requests have completed", done, posted)
	}
	for _, q := range p.qps {
		q.Close()
	}
	settle(t, p.a)
	return p
}
