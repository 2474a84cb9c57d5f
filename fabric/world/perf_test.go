package world_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/internal/race"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/perftest"
	"github.com/gosoftroce/rocev2/verbs"
)

// perfServer and perfClient are what `rocev2 perf` runs, over a connection that
// the platform has beside the devices.
func perfServer(ctx context.Context, dev *verbs.Device, ln net.Listener, c perftest.Config) ([]perftest.Result, error) {
	return perftest.Serve(ctx, dev, ln, c)
}

func perfClient(ctx context.Context, dev *verbs.Device, dial func(context.Context) (net.Conn, error), c perftest.Config) ([]perftest.Result, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	return perftest.Run(ctx, dev, conn, interop.Client, c)
}

// outcome is what came of a test: the results of both sides, of each size one,
// and the digest and the time of a world.
type outcome struct {
	server, client []perftest.Result
	digest         uint64
	took           time.Duration
}

// perfIn runs a test in a world whose hosts 0 and 1 it is between.
func perfIn(t testing.TB, w *world.World, c perftest.Config) (o outcome) {
	t.Helper()
	ln, err := w.Listen(0, interop.DefaultPort)
	must(t, err)
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) (err error) {
		o.server, err = perfServer(ctx, dev, ln, c)
		return err
	}))
	must(t, w.Go(1, func(ctx context.Context, dev *verbs.Device) (err error) {
		o.client, err = perfClient(ctx, dev, func(ctx context.Context) (net.Conn, error) {
			return w.Dial(ctx, 1, netip.AddrPortFrom(world.Addr(0), interop.DefaultPort))
		}, c)
		return err
	}))
	must(t, w.Run())
	must(t, w.Check())
	o.digest, o.took = w.Digest(), w.Now()
	return o
}

// perfOver runs it over UDP sockets.
func perfOver(t *testing.T, c perftest.Config) (o outcome) {
	s := newSockets(t, 2)
	ln, err := interop.Listen(t.Context(), s.devs[0].Addr().String(), 0)
	must(t, err)
	s.start(0, func(ctx context.Context, dev *verbs.Device) (err error) {
		o.server, err = perfServer(ctx, dev, ln, c)
		return err
	})
	s.start(1, func(ctx context.Context, dev *verbs.Device) (err error) {
		o.client, err = perfClient(ctx, dev, func(ctx context.Context) (net.Conn, error) {
			return interop.Dial(ctx, dev.Addr(), s.devs[0].Addr().String(), ln.Addr().(*net.TCPAddr).Port)
		}, c)
		return err
	})
	s.finish(t)
	return o
}

// All tests of perf run over sockets and in a world.
func TestPerf(t *testing.T) {
	t.Parallel()
	for _, test := range perftest.Tests {
		c := perftest.Config{Test: test, Iterations: 200, TxDepth: 32, IdleTimeout: 20 * time.Second}
		check := func(t *testing.T, o outcome) {
			if len(o.server)+len(o.client) == 0 {
				t.Error("there are no results")
			}
			for _, r := range append(o.server, o.client...) {
				if r.Iterations == 0 || r.MsgRate <= 0 {
					t.Errorf("result %+v", r)
				}
			}
		}
		t.Run(test.String()+"/sockets", func(t *testing.T) {
			t.Parallel()
			check(t, perfOver(t, c))
		})
		t.Run(test.String()+"/world", func(t *testing.T) {
			t.Parallel()
			o := perfIn(t, newWorld(t, world.Config{Network: star(2)}), c)
			check(t, o)
			for _, r := range o.client {
				t.Logf("%.2f Gb/s, %v", r.Gbps(), r.Latency)
			}
			if again := perfIn(t, newWorld(t, world.Config{Network: star(2)}), c); again.digest != o.digest || again.took != o.took {
				t.Errorf("the second run took %v with digest %x, the first %v with %x", again.took, again.digest, o.took, o.digest)
			}
		})
	}
}

// onWire returns the bytes that a message of a size takes on a cable: full
// packets of 4096 bytes, with a BTH each, the first also with so much more, or
// each.
func onWire(size, first, each int) (sum int) {
	for more := first; size > 0; more = each {
		n := min(size, 4096)
		sum += network.WireSize(20 + 8 + 12 + more + n + (-n & 3) + 4)
		size -= n
	}
	return sum
}

// The bandwidth tests report what a cable of 100 Gb/s carries: the bytes of the
// messages as a share of what their packets take, less one latency of the
// whole.
func TestPerfReportsLineRate(t *testing.T) {
	t.Parallel()
	const size = perftest.DefaultSizeBW
	iterations := 2000
	if race.Enabled {
		iterations = 600
	}
	for test, wire := range map[perftest.Test]int{
		{Verb: perftest.Write}: onWire(size, 16, 0),
		{Verb: perftest.Send}:  onWire(size, 0, 0),
		{Verb: perftest.Read}:  onWire(size, 4, 0) + 4, // AETH of the first and the last
	} {
		o := perfIn(t, newWorld(t, world.Config{Network: star(2)}), perftest.Config{Test: test, Iterations: iterations})
		want := 100 * float64(size) / float64(wire)
		for _, r := range append(o.client, o.server...) {
			t.Logf("%v: %.3f of %.3f Gb/s", test, r.Gbps(), want)
			if off := r.Gbps()/want - 1; math.Abs(off) > 0.01 {
				t.Errorf("%v: %.3f Gb/s are %.2f %% off %.3f", test, r.Gbps(), 100*off, want)
			}
		}
	}
}

// The latency tests report two cables of 1 µs and the serialization of the
// message by the host and by the switch, and, of READs and atomics, the answer
// too. An acknowledgement may go before a message, which costs another 14 ns.
func TestPerfReportsLatency(t *testing.T) {
	t.Parallel()
	bits := func(bytes int) time.Duration { return time.Duration(2 * 8 * bytes / 100) } // twice at 100 Gb/s
	const way = 2 * time.Microsecond
	small := network.WireSize(20 + 8 + 12 + 16 + 4 + 4)
	for test, want := range map[perftest.Test]time.Duration{
		{Verb: perftest.Write, Kind: perftest.Latency}:  way + bits(small),
		{Verb: perftest.Send, Kind: perftest.Latency}:   way + bits(network.WireSize(20+8+12+4+4)),
		{Verb: perftest.Read, Kind: perftest.Latency}:   2*way + bits(network.WireSize(20+8+12+16+4)) + bits(network.WireSize(20+8+12+4+4+4)),
		{Verb: perftest.Atomic, Kind: perftest.Latency}: 2*way + bits(network.WireSize(20+8+12+28+4)) + bits(network.WireSize(20+8+12+4+8+4)),
	} {
		o := perfIn(t, newWorld(t, world.Config{Network: star(2)}), perftest.Config{Test: test})
		for _, r := range append(o.client, o.server...) {
			l := r.Latency
			if l == nil {
				continue // of a server that only answers
			}
			t.Logf("%v: %v to %v, half of them up to %v, by the formula %v", test, l.Min, l.Max, l.Typical, want)
			if l.Min < want-2 || l.Max > want+bits(84)+4 {
				t.Errorf("%v: %v to %v, by the formula %v", test, l.Min, l.Max, want)
			}
		}
	}
}

// Runs are the same with any number of processors.
func TestPerfIsRepeatable(t *testing.T) { // not parallel: it sets GOMAXPROCS
	times := 10
	if race.Enabled {
		times = 1
	}
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for _, c := range []perftest.Config{
		{Test: perftest.Test{Verb: perftest.Write}, Iterations: 50 * times, QPs: 4, Bidirectional: true},
		{Test: perftest.Test{Verb: perftest.Send}, Duration: time.Duration(times) * 300 * time.Microsecond},
		{Test: perftest.Test{Verb: perftest.Read}, AllSizes: true, Iterations: times},
		{Test: perftest.Test{Verb: perftest.Send}, Service: interop.UD, Size: 2048, Iterations: 300},
		{Test: perftest.Test{Verb: perftest.Send}, Service: interop.XRC, Iterations: 300, Events: true},
		{Test: perftest.Test{Verb: perftest.Write, Kind: perftest.Latency}, Duration: time.Millisecond},
	} {
		var first string
		for i, procs := range []int{1, 2, before} {
			runtime.GOMAXPROCS(procs)
			t.Run(fmt.Sprintf("%v/%d", c.Test, procs), func(t *testing.T) {
				o := perfIn(t, newWorld(t, world.Config{Network: clos(t, 0, 1)}), c)
				got := fmt.Sprintf("%x after %v", o.digest, o.took)
				if i == 0 {
					first = got
					t.Logf("%s; %d results, the last %.2f Gb/s", got, len(o.client), o.client[len(o.client)-1].Gbps())
				}
				if got != first {
					t.Errorf("%s with %d processors, before %s", got, procs, first)
				}
			})
		}
	}
}
