package adapter

import (
	"bytes"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// With Config.Real the bytes arrive, over a network that loses some packets.
func TestReal(t *testing.T) {
	t.Parallel()
	const size = 3<<20 + 5
	var done [2]int
	for k, real := range []bool{true, false} {
		a := star(t, 2, 2e6, network.Switch{}, Config{Seed: 3, Real: real})
		x, y := mustConnect(t, a, 0, 1, Connection{})
		var from, to [3][]byte
		rng := event.NewRand(1, 1)
		requests := [3]Request{{Op: ib.OpWrite}, {Op: ib.OpSend}, {Op: ib.OpRead}}
		for i := range requests {
			r := &requests[i]
			r.Bytes = size
			r.Done = func(c Completion) {
				if c.Status != ib.StatusSuccess {
					t.Errorf("%+v", c)
				}
				done[k]++
			}
			if !real {
				continue
			}
			from[i], to[i] = make([]byte, size), make([]byte, size)
			for b := range from[i] {
				from[i][b] = byte(rng.Uint64())
			}
			if r.Op == ib.OpRead { // from there to here
				from[i], to[i] = to[i], from[i]
			}
			here, err := x.Host().Register(from[i])
			must(t, err)
			there, err := y.Host().Register(to[i])
			must(t, err)
			r.Local = here.All()
			if r.Op == ib.OpSend {
				must(t, y.PostRecv(there.All()))
			} else {
				r.Remote = ib.RemoteAddr{Addr: there.Addr(), RKey: there.RKey()}
			}
		}
		for _, r := range requests {
			must(t, x.Post(r))
		}
		settle(t, a)
		for i := range from {
			if !bytes.Equal(from[i], to[i]) {
				t.Errorf("request %d: other bytes have arrived", i)
			}
		}
		if a.Stats().Retransmits == 0 {
			t.Error("nothing was lost")
		}
	}
	if done != [2]int{3, 3} {
		t.Errorf("%d requests have completed", done)
	}
}

// A packet with a wrong ICRC is dropped.
func TestRealChecksICRC(t *testing.T) {
	t.Parallel()
	a := star(t, 2, 0, network.Switch{}, Config{Real: true})
	x, y := mustConnect(t, a, 0, 1, Connection{MTU: rocev2.MTU1024})
	from, to := bytes.Repeat([]byte{7}, 100_000), make([]byte, 100_000)
	here, err := x.Host().Register(from)
	must(t, err)
	there, err := y.Host().Register(to)
	must(t, err)
	done := 0
	must(t, x.Post(Request{Op: ib.OpWrite, Local: here.All(), Remote: ib.RemoteAddr{Addr: there.Addr(), RKey: there.RKey()},
		Done: func(c Completion) { done++ }}))
	a.Network().Run(2 * event.Microsecond)
	damaged := 0
	for i := range uint32(3) {
		b := a.parts[0].records.bodies.at(i).data
		b[len(b)-6] ^= 1
		damaged++
	}
	a.Network().Run(event.Second)
	if n := y.Host().Engine().Counters().Device; done != 1 || !bytes.Equal(from, to) || int(n[engine.DropBadICRC]) != damaged {
		t.Errorf("%d completions, dropped %v", done, n)
	}
}
