package udp

import (
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// BenchmarkThroughput sends packets of one size from one goroutine to another
// over loopback sockets, sealed and verified. The sender keeps what is in
// flight below a window, as a queue pair does; what is lost is reported.
func BenchmarkThroughput(b *testing.B) {
	for _, c := range []struct {
		name    string
		payload int
		config  Config
	}{
		{"4096", 4096, Config{}},
		{"1024", 1024, Config{}},
		{"256", 256, Config{}},
		{"8", 8, Config{}},
		{"plain-4096", 4096, Config{DisableGSO: true, DisableGRO: true}},
		{"plain-1024", 1024, Config{DisableGSO: true, DisableGRO: true}},
	} {
		b.Run(c.name, func(b *testing.B) { throughput(b, c.payload, c.config, c.config) })
	}
}

// The shape of the benchmark: full runs in every Send, so that no buffer leaves
// half empty, and a window that the receive buffer holds easily.
const (
	benchArena   = 512 << 10
	benchBuffers = 8
	benchWindow  = 1 << 20
	benchRuns    = 4
)

func throughput(b *testing.B, payload int, sc, rc Config) {
	src, dst := loopback(), loopback()
	s, r := open(b, src, sc), open(b, dst, rc)
	path := transport.NewPath(src, transport.Path{Dst: dst})
	data := packet(1, payload)
	size := int64(len(data) + rocev2.ICRCLen)
	b.SetBytes(size)
	perRun := min(transport.MaxRunSegments, transport.MaxRunBytes/size)

	// The window is shared memory: acknowledgements are not what is
	// measured.
	var seen, bad atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		rx := transport.NewRxBatch(benchBuffers)
		for r.Wait() == nil {
			for {
				n, err := r.Recv(rx)
				if n == 0 || err != nil {
					break
				}
				for i := range rx.Packets() {
					if rx.Packets()[i].ICRC != transport.ICRCVerified {
						bad.Add(1)
					}
				}
				seen.Add(int64(n))
			}
		}
	})
	tx := transport.NewTxBatch(benchArena)
	b.ReportAllocs()
	b.ResetTimer()
	sent, lost := int64(0), int64(0)
	await := func(inFlight int64) {
		for start := time.Now(); sent-lost-seen.Load() > inFlight; runtime.Gosched() {
			if time.Since(start) > time.Second { // what is missing now does not come any more
				lost = sent - seen.Load()
			}
		}
	}
	for sent < int64(b.N) {
		await(benchWindow / size)
		tx.Reset()
		for k := int64(0); sent < int64(b.N) && k < perRun*benchRuns; k++ {
			room := tx.Room()
			if room == nil {
				break
			}
			tx.Commit(copy(room, data), path)
			sent++
		}
		if err := s.Send(tx); err != nil {
			b.Fatal(err)
		}
	}
	await(0)
	b.StopTimer()
	b.ReportMetric(float64(seen.Load()*size*8)/float64(b.Elapsed().Nanoseconds()), "Gb/s")
	b.ReportMetric(float64(sent-seen.Load()), "lost")
	b.ReportMetric(float64(bad.Load()), "bad")
	if st := r.Stats(); sent != seen.Load() {
		b.Logf("receiver %+v", st)
		b.Logf("sender %+v", s.Stats())
	}
	r.Close()
	wg.Wait()
}

// BenchmarkPerPacket sends and receives in turn in one goroutine, which shows
// what each side costs whatever else the machine does.
func BenchmarkPerPacket(b *testing.B) {
	for _, payload := range []int{4096, 1024, 256, 8} {
		b.Run(strconv.Itoa(payload), func(b *testing.B) { perPacket(b, payload) })
	}
}

func perPacket(b *testing.B, payload int) {
	src, dst := loopback(), loopback()
	s, r := open(b, src, Config{}), open(b, dst, Config{})
	path := transport.NewPath(src, transport.Path{Dst: dst})
	data := packet(1, payload)
	size := len(data) + rocev2.ICRCLen
	n := benchRuns * min(transport.MaxRunSegments, transport.MaxRunBytes/size)
	tx, rx := transport.NewTxBatch(benchArena), transport.NewRxBatch(benchBuffers)
	for range n {
		tx.Commit(copy(tx.Room(), data), path)
	}
	b.SetBytes(int64(size))
	var sending, receiving []time.Duration
	for i := 0; i < b.N; i += n {
		start := time.Now()
		if err := s.Send(tx); err != nil {
			b.Fatal(err)
		}
		sent := time.Now()
		for got := 0; got < n; {
			k, err := r.Recv(rx)
			if err != nil {
				b.Fatal(err)
			}
			got += k
		}
		sending = append(sending, sent.Sub(start))
		receiving = append(receiving, time.Since(sent))
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Nanoseconds()) / float64(n)
	}
	b.ReportMetric(median(sending), "send-ns/packet")
	b.ReportMetric(median(receiving), "recv-ns/packet")
}

// BenchmarkRoundTrip sends a small packet to and fro between two goroutines,
// which poll or park in Wait.
func BenchmarkRoundTrip(b *testing.B) {
	for _, poll := range []bool{true, false} {
		b.Run(map[bool]string{true: "poll", false: "wait"}[poll], func(b *testing.B) {
			x, y := open(b, loopback(), Config{}), open(b, loopback(), Config{})
			// play answers every packet, the first is sent by one
			// side.
			play := func(l, peer *Link, rounds int, first bool) {
				tx, rx := transport.NewTxBatch(0), transport.NewRxBatch(1)
				tx.Commit(copy(tx.Room(), packet(1, 8)), transport.NewPath(l.Addr(), transport.Path{Dst: peer.Addr()}))
				for range rounds {
					if first {
						if err := l.Send(tx); err != nil {
							b.Error(err)
							return
						}
					}
					for n := 0; n == 0; {
						var err error
						if !poll {
							err = l.Wait()
						}
						if err == nil {
							n, err = l.Recv(rx)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
					if !first {
						if err := l.Send(tx); err != nil {
							b.Error(err)
							return
						}
					}
				}
			}
			var wg sync.WaitGroup
			wg.Go(func() { play(y, x, b.N, false) })
			play(x, y, b.N, true)
			wg.Wait()
		})
	}
}
