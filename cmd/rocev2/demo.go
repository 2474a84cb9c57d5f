package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/verbs"
)

// demoFlags are the flags of the demo.
type demoFlags struct {
	local, peer string
	rates       time.Duration
	inspect     inspectFlags
}

func newDemo(io streams) *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run and verify every operation between two processes, and measure rates",
		Long: `Start a second process, and run every operation of a reliable connection
between the two, with real UDP packets over loopback. This process has the
device 127.0.0.2, and the other process has 127.0.0.1. The demo compares what
arrives with what was sent. Then it measures bandwidth and latency for a moment.

The demo needs no root and no kernel module, and it leaves nothing behind. The
exit status is 0 if every operation did what it should.

--fault makes the network between the two a bad one. --pcap records the packets.
Both work on the device of this process, and all packets pass through it. All
data must arrive even so. At the end the demo says what was lost and repaired.

With --shm both processes share memory. Their first packets take the socket
until the two have agreed.`,
		Example: `  rocev2 demo
  rocev2 demo --fault drop=1% --fault reorder=1% --stats    on a bad network
  rocev2 demo --rates 0 --pcap demo.pcapng                  with a capture for Wireshark`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), io, &f)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.local, "local", "127.0.0.2", "`address` of this process's device")
	fs.StringVar(&f.peer, "peer", "127.0.0.1", "`address` of the other process's device")
	fs.DurationVar(&f.rates, "rates", time.Second, "how long to measure each bandwidth; 0 measures neither bandwidths nor latencies")
	f.inspect.register(cmd)
	return cmd
}

// demoLimit bounds the whole demo.
const demoLimit = time.Minute

func runDemo(ctx context.Context, io streams, f *demoFlags) (err error) {
	for _, a := range []string{f.local, f.peer} {
		if _, err := netip.ParseAddr(a); err != nil {
			return usagef("%q is not an address: use an IP address of this host", a)
		}
	}
	if f.rates != 0 && (f.rates < 50*time.Millisecond || f.rates > 10*time.Second) {
		return usagef("--rates %v: it must be 0, or a time from 50ms to 10s", f.rates)
	}
	in, err := f.inspect.begin(io)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, demoLimit, fmt.Errorf("the demo took longer than %v", demoLimit))
	defer cancel()
	begin := time.Now()
	d := &demo{in: in, io: in.streams, flags: f}
	defer func() { err = in.end(err) }()
	defer d.close()
	if err := d.setUp(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.io.out, "\nOperations: this process starts each one, and compares what arrived with what was sent.\n\n")
	fmt.Fprintf(d.io.out, "  %-14s %-52s %10s  %s\n", "operation", "what happens", "bytes", "result")
	for _, step := range demoSteps {
		if err := d.step(ctx, step); err != nil {
			return err
		}
	}
	if f.rates > 0 {
		if err := d.measure(ctx); err != nil {
			return err
		}
	}
	if err := d.account(ctx); err != nil {
		return err
	}
	in.sayWay()
	if d.failed > 0 {
		return fmt.Errorf("%d of %d operations did not do what they should", d.failed, d.ran)
	}
	fmt.Fprintf(d.io.out, "\nAll %d operations did what they should, in %.1f s.\n", d.ran, time.Since(begin).Seconds())
	return nil
}

// Layout of the memory of either process, in bytes: a work area of all sizes,
// then one word for atomics.
const (
	demoArea  = 1 << 20
	demoWord  = demoArea
	demoTotal = demoArea + 4096

	demoDepth = 16
)

// demo is the asking process.
type demo struct {
	in     *inspector
	io     streams // of in
	flags  *demoFlags
	dev    *verbs.Device
	pd     *verbs.PD
	mr     *verbs.MR
	cq     *verbs.CQ
	qp     *verbs.QP
	child  *demoChild
	hello  demoReply // what the other process has
	ran    int
	failed int
	id     uint64
}

func (d *demo) close() {
	if d.child != nil {
		d.child.stop()
	}
}

func (d *demo) setUp(ctx context.Context) (err error) {
	if d.dev, err = openDevice(d.io, d.flags.local, "", d.in.open); err != nil {
		return err
	}
	if d.pd, err = d.dev.AllocPD(); err != nil {
		return err
	}
	if d.mr, err = d.pd.AllocMemory(demoTotal, verbs.LocalWrite); err != nil {
		return err
	}
	if d.cq, err = d.dev.CreateCQ(4 * demoDepth); err != nil {
		return err
	}
	if d.child, err = startDemoChild(ctx, d.flags, d.in.trafficClass(), d.io); err != nil {
		return err
	}
	if d.hello, err = d.child.ask(ctx, demoAsk{Do: "hello"}); err != nil {
		return err
	}
	if d.qp, err = d.connect(ctx, d.hello.Endpoint); err != nil {
		return err
	}
	fmt.Fprintf(d.io.out, "Two processes, each with its own software RDMA device on its own address:\n\n")
	fmt.Fprintf(d.io.out, "  this one       process %-8d %v\n", os.Getpid(), d.qp.Endpoint())
	fmt.Fprintf(d.io.out, "  the other one  process %-8d %v, memory of %d bytes with rkey 0x%08x\n",
		d.child.pid(), d.hello.Endpoint, d.hello.Memory.Length, uint32(d.hello.Memory.RKey))
	fmt.Fprintf(d.io.out, "  path           UDP port %d, path MTU %d bytes\n", d.dev.QueryPort().UDPPort, d.dev.QueryPort().ActiveMTU.Bytes())
	return nil
}

// connect makes a queue pair towards one of the other process, and lets that
// one connect too.
func (d *demo) connect(ctx context.Context, to verbs.Endpoint) (*verbs.QP, error) {
	q, err := d.pd.CreateQP(verbs.QPConfig{SendCQ: d.cq, RecvCQ: d.cq})
	if err != nil {
		return nil, err
	}
	end := q.Endpoint()
	if _, err := d.child.ask(ctx, demoAsk{Do: "connect", Endpoint: &end}); err != nil {
		return nil, err
	}
	return q, q.Connect(ctx, to, withTrafficClass(d.in.trafficClass()))
}

func withTrafficClass(class uint8) verbs.ConnectOption {
	return func(c *verbs.ConnectConfig) { c.TrafficClass = class }
}

// account asks the other process for its counters, and says what faults there
// were and what they have cost.
func (d *demo) account(ctx context.Context) error {
	if d.in.faults == nil && d.in.flags.stats == "" {
		return nil
	}
	theirs, err := d.child.ask(ctx, demoAsk{Do: "stats"})
	if err != nil {
		return err
	}
	d.in.extra = append(d.in.extra, theirs.Stats)
	if d.in.faults == nil {
		return nil
	}
	tx, rx := d.in.faults.Counts()
	ours := d.in.report()
	a, b := ours.section(sectionQPs), theirs.Stats.section(sectionQPs)
	both := func(name string) uint64 { return a.get(name) + b.get(name) }
	_, err = fmt.Fprintf(d.io.out, `
Faults, of %d packets: %d dropped, %d duplicated, %d reordered, %d corrupted, %d delayed.
Repaired: %d packets of requests sent again, %d READs and atomics answered again.
`,
		tx.Packets+rx.Packets, tx.Dropped+rx.Dropped, tx.Duplicated+rx.Duplicated, tx.Reordered+rx.Reordered,
		tx.Corrupted+rx.Corrupted, tx.Delayed+rx.Delayed,
		both("retransmits"), both("read_replays")+both("atomic_replays"))
	return err
}

// do runs one work request to its completion.
func (d *demo) do(ctx context.Context, q *verbs.QP, wr verbs.SendWR) (verbs.WC, error) {
	d.id++
	wr.ID, wr.Signaled = d.id, true
	if err := q.PostSend(wr); err != nil {
		return verbs.WC{}, err
	}
	var wc [1]verbs.WC
	if _, err := d.cq.Wait(ctx, wc[:]); err != nil {
		return verbs.WC{}, err
	}
	if wc[0].ID != d.id {
		return wc[0], fmt.Errorf("work request %d completed in place of %d", wc[0].ID, d.id)
	}
	return wc[0], nil
}

// mismatch says what was found instead of what should be: a failed step, not a
// failed demo.
type mismatch struct{ text string }

func (m mismatch) Error() string { return m.text }

func mismatchf(format string, args ...any) error { return mismatch{fmt.Sprintf(format, args...)} }

// demoStep is one row of the table.
type demoStep struct {
	name, what string
	size       int
	run        func(ctx context.Context, d *demo, size int) (result string, err error)
}

func (d *demo) step(ctx context.Context, s demoStep) error {
	d.ran++
	result, err := s.run(ctx, d, s.size)
	var m mismatch
	if errors.As(err, &m) {
		d.failed++
		result = "FAILED: " + m.text
	} else if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	_, err = fmt.Fprintf(d.io.out, "  %-14s %-52s %10d  %s\n", s.name, s.what, s.size, result)
	return err
}
