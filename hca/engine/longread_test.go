package engine

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// READs of much go in long requests to a native peer nearby, while two of them
// fit into the window, and in ordinary ones else.
func TestLongReads(t *testing.T) {
	t.Parallel()
	const chunk = 256 << 10
	wide := qp.WindowConfig{InitialBytes: 4 << 20, MaxBytes: 4 << 20, MaxPSNs: 4096}
	narrow := qp.WindowConfig{InitialBytes: 2 << 20, MaxBytes: 2 << 20, MaxPSNs: 4096}
	few := qp.WindowConfig{InitialBytes: 4 << 20, MaxBytes: 4 << 20, MaxPSNs: 500}
	for name, c := range map[string]struct {
		config  Config
		foreign bool
		delay   time.Duration
		loss    float64 // before
		mtu     rocev2.MTU
		size    int // 2 MiB if 0
		want    int // bytes a request
	}{
		"as it comes":        {want: 4 * chunk},
		"short packets":      {mtu: rocev2.MTU2048, want: chunk},
		"after losses":       {config: Config{Window: wide}, loss: 0.08, want: chunk}, // the window is small
		"few packets":        {config: Config{Window: few}, want: chunk},
		"much":               {size: 16 << 20, want: 4 * chunk},
		"very much":          {size: 16<<20 + chunk, want: chunk},
		"nearby":             {config: Config{Window: wide}, want: 4 * chunk},
		"far away":           {config: Config{Window: wide}, delay: 2 * time.Millisecond, want: chunk},
		"a window too small": {config: Config{Window: narrow}, want: chunk},
		"a foreign peer":     {config: Config{Window: wide}, foreign: true, want: chunk},
		"as it was told":     {config: Config{Window: wide, ReadChunk: chunk / 2}, want: chunk / 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			w.delay = max(c.delay, 10*time.Microsecond)
			size := cmp.Or(c.size, 1<<21)
			a, b := w.newHost(c.config, size), w.newHost(c.config, size)
			a.mtu = cmp.Or(c.mtu, rocev2.MTU4096)
			b.mtu = a.mtu
			qa, _ := connectPair(a, b, !c.foreign)
			w.loss = c.loss
			warm := 16 // show the round trip, and open the window
			if c.loss > 0 {
				warm = 2 // it opens again
			}
			for range warm {
				a.post(qa, ib.OpRead, b, 1<<21)
				a.waitOK(1)
			}
			w.loss = 0
			_, _ = rand.NewChaCha8([32]byte{1}).Read(b.mem) // never fails
			var asked []int
			w.change = func(_ *host, packets []transport.RxPacket) []transport.RxPacket {
				for _, d := range packets {
					if d.Data[0] == byte(rocev2.RCReadRequest) {
						asked = append(asked, int(binary.BigEndian.Uint32(d.Data[rocev2.BTHLen+12:])))
					}
				}
				return packets
			}
			a.post(qa, ib.OpRead, b, uint32(size))
			a.waitOK(1)
			if !slices.Equal(a.mem, b.mem) {
				t.Error("not what was read")
			}
			if len(asked) == 0 || slices.Max(asked) != c.want || c.loss == 0 && len(asked) != size/c.want {
				t.Errorf("requests of %v bytes, want %d", asked, c.want)
			}
		})
	}
}

// Queue pairs that all ask for as much as they can share what may be in flight,
// also with one that has asked in long requests before the others came.
func TestLongReadsShare(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			const size = 2 << 20
			w := newWorld(t, 1)
			w.rate, w.delay = 40e9, 10*time.Microsecond
			a, b := w.newHost(Config{}, size), w.newHost(Config{}, size)
			a.mtu, b.mtu = rocev2.MTU4096, rocev2.MTU4096
			byQPN, asked := map[rocev2.QPN]*QP{}, map[rocev2.QPN]int{}
			long, most := 0, 0
			w.change = func(h *host, packets []transport.RxPacket) []transport.RxPacket {
				for _, d := range packets {
					if d.Data[0] == byte(rocev2.RCReadRequest) && binary.BigEndian.Uint32(d.Data[rocev2.BTHLen+12:]) == 1<<20 {
						long++
					}
				}
				most = max(most, a.e.Usage().InFlight)
				return packets
			}
			var queues []*QP
			for range n {
				q, _ := connectPair(a, b, true)
				byQPN[q.QPN()] = q
				queues = append(queues, q)
			}
			for range 8 {
				a.post(queues[0], ib.OpRead, b, size)
			}
			a.waitOK(6)
			for _, q := range queues {
				a.post(q, ib.OpRead, b, size)
				a.post(q, ib.OpRead, b, size)
			}
			for range 8 * n {
				a.wait(1)
				c := a.done[0]
				a.done = a.done[1:]
				if c.Status != ib.StatusSuccess {
					t.Fatalf("%v", c)
				}
				asked[c.QPN]++
				a.post(byQPN[c.QPN], ib.OpRead, b, size)
			}
			for _, q := range queues {
				if asked[q.QPN()] < 4 {
					t.Errorf("one of %d queue pairs has had %d READs of %d", n, asked[q.QPN()], 8*n)
				}
			}
			if limit := defaultMaxWindow; long == 0 || most > limit*3/2 {
				t.Errorf("%d long requests; at most %d bytes were in flight, want %d", long, most, limit*3/2)
			}
		})
	}
}
