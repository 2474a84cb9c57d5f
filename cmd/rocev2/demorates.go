package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/perftest"
)

// demoRates is what is measured, for a moment each.
var demoRates = []struct {
	what string
	test perftest.Test
	size int
}{
	{"WRITE bandwidth", perftest.Test{Verb: perftest.Write, Kind: perftest.Bandwidth}, 1 << 20},
	{"READ bandwidth", perftest.Test{Verb: perftest.Read, Kind: perftest.Bandwidth}, 1 << 20},
	{"SEND bandwidth", perftest.Test{Verb: perftest.Send, Kind: perftest.Bandwidth}, 1 << 20},
	{"WRITE latency", perftest.Test{Verb: perftest.Write, Kind: perftest.Latency}, 8},
	{"SEND latency", perftest.Test{Verb: perftest.Send, Kind: perftest.Latency}, 8},
	{"READ latency", perftest.Test{Verb: perftest.Read, Kind: perftest.Latency}, 8},
	{"FETCH_ADD latency", perftest.Test{Verb: perftest.Atomic, Kind: perftest.Latency}, 8},
}

// demoRounds is how many round trips a latency is measured over: a number, not
// a time, since the two processes get the processors at different times.
const demoRounds = 500

// measure runs the rates with the protocol of perftest.
func (d *demo) measure(ctx context.Context) error {
	fmt.Fprintf(d.io.out, "\nRates over %v each, latencies over %d round trips (rocev2 perf measures at length):\n\n",
		d.flags.rates, demoRounds)
	fmt.Fprintf(d.io.out, "  %-18s %10s  %s\n", "test", "bytes", "result")
	for _, r := range demoRates {
		c := perftest.Config{Test: r.test, Size: r.size, Duration: d.flags.rates, TrafficClass: d.in.trafficClass()}
		if r.test.Kind == perftest.Latency {
			c.Duration, c.Iterations = 0, demoRounds
		}
		res, err := d.rate(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", r.what, err)
		}
		text := fmt.Sprintf("%.2f Gb/s, %.0f messages/s", res.Gbps(), res.MsgRate)
		if l := res.Latency; l != nil {
			path := "half of a round trip"
			if r.test.Verb == perftest.Read || r.test.Verb == perftest.Atomic {
				path = "a round trip"
			}
			text = fmt.Sprintf("%.2f µs median, %.2f µs 99 %% (%s)", usec(l.Typical), usec(l.P99), path)
		}
		if _, err := fmt.Fprintf(d.io.out, "  %-18s %10d  %s\n", r.what, r.size, text); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) rate(ctx context.Context, c perftest.Config) (perftest.Result, error) {
	where, err := d.child.ask(ctx, demoAsk{Do: "rate", Test: c.Test, Size: c.Size, Duration: c.Duration, Rounds: c.Iterations})
	if err != nil {
		return perftest.Result{}, err
	}
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(d.dev.Addr(), 0))}
	conn, err := dialer.DialContext(ctx, "tcp", where.TCP)
	if err != nil {
		return perftest.Result{}, err
	}
	res, err := perftest.Run(ctx, d.dev, conn, interop.Client, c)
	if err != nil {
		return perftest.Result{}, err
	}
	if err := d.child.await(ctx, "rate"); err != nil {
		return perftest.Result{}, err
	}
	return res[0], nil
}
