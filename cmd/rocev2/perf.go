package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/internal/closest"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/perftest"
	"github.com/gosoftroce/rocev2/verbs"
)

func newPerf(io streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "perf",
		Short: "Measure bandwidth and latency, against a perftest program or another rocev2",
		Long: `Measure the bandwidth or the latency of an operation. The peer is another
rocev2 perf with the same test, or the program of that name in the perftest
package (version 4.5, which calls itself 6.06): "perf write_bw" talks to
ib_write_bw. Without a server argument, this side is the server.

-c chooses the transport service: RC, UC (SEND and WRITE), UD (SEND) or XRC. With
--use-srq the queue pairs of this side share one receive queue. UC and UD do not
repeat what is lost: the side that receives counts the messages that do not
come. A latency test ends with an error at the first of them.

Start both sides with the same test, size, iterations or duration, number of
queue pairs and direction. The two sides negotiate only the path MTU.

With -z the two sides exchange addresses over a queue pair of the connection
manager instead of TCP, and with -R the connection manager connects all of them.

With --tls-cert, --tls-key and --tls-ca on both sides, or with --psk, the run is
secured, over RC and XRC: by TLS 1.3, and all packets encrypted (docs/secure.md).

With --sport, the packets that this side sends can take another path through a
network that spreads flows (ECMP). Two rocev2 sides recognise each other, so
--sport does not slow them down.

` + controlHelp + `

If two rocev2 sides were started differently, they name the difference. If an
option of a perftest program does not apply here, the error says why.`,
		Example: `  rocev2 perf write_bw -d 127.0.0.1                   run a server ...
  rocev2 perf write_bw -d 127.0.0.2 127.0.0.1         ... and its client
  rocev2 perf send_lat -s 64 192.0.2.7                connect to ib_send_lat -s 64 on 192.0.2.7
  rocev2 perf send_bw -c UD -d eth0 192.0.2.7         connect to ib_send_bw -c UD on 192.0.2.7
  rocev2 perf read_bw -D 10 -q 4 --json 192.0.2.7     ten seconds, four queue pairs, a line of JSON`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			_, err := perftest.ParseTest(args[0])
			for _, a := range args[1:] {
				if _, e := perftest.ParseTest(a); e == nil {
					return usagef("the test comes first: rocev2 perf %s %s", a, args[0])
				}
			}
			return usageError{fmt.Errorf("%w%s", err, closest.Question(args[0], commandNames(cmd)))}
		},
		RunE: func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	for _, t := range perftest.Tests {
		cmd.AddCommand(newPerfTest(io, t))
	}
	return cmd
}

// perfFlags are the flags of one test.
type perfFlags struct {
	peerFlags
	perftest.Config
	seconds float64
	margin  float64
	atomic  string
	rate    float64
	units   string
	timeout uint8
	cpuFreq bool
	cmAll   bool // -R
	cmComm  bool // -z
	tos     int
	retries uint8
	version bool
	tls     tlsFlags
	reportFlags
}

var perfTexts = map[perftest.Test]string{
	{Verb: perftest.Send, Kind: perftest.Bandwidth}:   "SEND bandwidth",
	{Verb: perftest.Write, Kind: perftest.Bandwidth}:  "RDMA WRITE bandwidth",
	{Verb: perftest.Read, Kind: perftest.Bandwidth}:   "RDMA READ bandwidth",
	{Verb: perftest.Atomic, Kind: perftest.Bandwidth}: "atomic operations bandwidth",
	{Verb: perftest.Send, Kind: perftest.Latency}:     "SEND latency: half of a round trip",
	{Verb: perftest.Write, Kind: perftest.Latency}:    "RDMA WRITE latency: half of a round trip",
	{Verb: perftest.Read, Kind: perftest.Latency}:     "RDMA READ latency: a round trip",
	{Verb: perftest.Atomic, Kind: perftest.Latency}:   "atomic operations latency: a round trip",
}

func newPerfTest(io streams, t perftest.Test) *cobra.Command {
	f := &perfFlags{}
	f.Test = t
	cmd := &cobra.Command{
		Use:     t.String() + " [flags] [server]",
		Aliases: []string{t.Tool()},
		Short:   perfTexts[t] + " (" + t.Tool() + ")",
		Long: fmt.Sprintf("Measure %s.\n\nThe peer is another rocev2 perf %v, or %s, started\nwith the same flags. Without a server argument, this side is the server.\n\nTo learn how the two sides connect, see rocev2 perf --help.",
			perfTexts[t], t, t.Tool()),
		Example: fmt.Sprintf("  rocev2 perf %[1]v -d 127.0.0.1\n  rocev2 perf %[1]v -d 127.0.0.2 127.0.0.1\n  rocev2 perf %[1]v -D 10 --json 192.0.2.7", t),
		Args:    atMostServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.version {
				return printVersion(io)
			}
			return runPerf(cmd.Context(), io, f, serverOf(args), cmd)
		},
	}
	f.register(cmd)
	f.registerRate(cmd)
	f.registerCM(cmd)
	f.tls.register(cmd)
	return cmd
}

func (f *perfFlags) register(cmd *cobra.Command) {
	f.peerFlags.register(cmd, "gid-index", "x")
	fs, t := cmd.Flags(), f.Test
	bw, atomic := t.Kind == perftest.Bandwidth, t.Verb == perftest.Atomic
	iterations := perftest.DefaultIterations
	if t.Verb == perftest.Write && bw {
		iterations = perftest.DefaultIterationsWrite
	}
	if !atomic {
		f.Size = perftest.DefaultSizeBW
		if !bw {
			f.Size = perftest.DefaultSizeLat
		}
		fs.VarP(sizeFlag{&f.Size}, "size", "s", "size of a message in `bytes`, also 64K or 1M (with UD at most the path MTU)")
		fs.BoolVarP(&f.AllSizes, "all", "a", false, "run the test with all sizes from 2 to 2^23")
	}
	fs.VarP(nameFlag[interop.Service]{&f.Service, interop.ParseService}, "connection", "c", "transport `service`: "+servicesOf(t))
	fs.IntVarP(&f.Iterations, "iters", "n", iterations, "`number` of operations on each queue pair")
	fs.Float64VarP(&f.seconds, "duration", "D", 0, "run for this many `seconds` instead, and measure the middle half")
	fs.Float64VarP(&f.margin, "margin", "f", 0, "with -D: do not measure this many `seconds` at each end (default: a quarter)")
	fs.IntVarP(&f.mtu, "mtu", "m", 0, "path MTU in `bytes` (default: the largest that the link carries)")
	fs.Uint8VarP(&f.timeout, "qp-timeout", "u", perftest.DefaultTimeout, "acknowledgement timeout of 4.096 µs × 2^`n`")
	fs.BoolVarP(&f.cpuFreq, "CPU-freq", "F", false, "accepted for compatibility")
	fs.IntVarP(&f.sl, "sl", "S", 0, "accepted for compatibility: Ethernet has no service level here")
	if bw {
		fs.IntVarP(&f.QPs, "qp", "q", 1, "`number` of queue pairs")
		fs.IntVarP(&f.TxDepth, "tx-depth", "t", perftest.DefaultTxDepth, "`number` of operations outstanding on a queue pair")
		fs.IntVarP(&f.CQMod, "cq-mod", "Q", 0, "one completion for this `many` operations (default: depends on size and depth)")
		fs.IntVarP(&f.PostList, "post_list", "l", 0, "post this `many` operations at a time (default: as many as there is room for)")
		fs.BoolVarP(&f.Bidirectional, "bidirectional", "b", false, "both sides send")
		fs.BoolVar(&f.Endless, "run_infinitely", false, "run until interrupted, and print a result every -D seconds (default: every 5)")
		if t.Verb == perftest.Send {
			fs.IntVar(&f.RecvPostList, "recv_post_list", 0, "post this `many` receives at a time")
		}
	}
	f.reportFlags.register(cmd, bw)
	if t.Verb == perftest.Send {
		fs.IntVarP(&f.RxDepth, "rx-depth", "r", perftest.DefaultRxDepth, "`number` of receives that stay posted on a queue pair, or on the shared receive queue (with UC and UD by default all that come, at most 16000)")
		fs.BoolVar(&f.SharedReceives, "use-srq", false, "the queue pairs of this side share one receive queue")
	}
	if t.Verb == perftest.Send || t.Verb == perftest.Write {
		fs.IntVarP(&f.Inline, "inline_size", "I", t.DefaultInline(), "put messages of up to this many `bytes` into the work request")
	}
	if t.Verb == perftest.Read || atomic {
		fs.IntVarP(&f.OutstandingReads, "outs", "o", 0, "`number` of operations outstanding on the wire (default: the device's limit)")
	}
	if atomic {
		fs.StringVarP(&f.atomic, "atomic_type", "A", "FETCH_AND_ADD", "`operation`: FETCH_AND_ADD or CMP_AND_SWAP")
	}
	if (t != perftest.Test{Verb: perftest.Write, Kind: perftest.Latency}) {
		fs.BoolVarP(&f.Events, "events", "e", false, "sleep on completion events instead of polling")
	}
	fs.BoolVarP(&f.version, "version", "V", false, "print the version")
	registerForeign(cmd, t)
}

// servicesOf names the transport services that a test has.
func servicesOf(t perftest.Test) string {
	var names []string
	for _, s := range interop.Services {
		if t.Serves(s) {
			names = append(names, s.String())
		}
	}
	return strings.Join(names, ", ")
}

// config checks what was given and makes a configuration of it.
func (f *perfFlags) config(cmd *cobra.Command) (perftest.Config, error) {
	if err := f.check(); err != nil {
		return f.Config, err
	}
	c := f.Config
	var err error
	if c.MTU, c.SourcePort, c.Peers, err = f.forBoth(); err != nil {
		return c, err
	}
	c.IdleTimeout = f.idle
	for flag, value := range map[string]*int{"size": &c.Size, "rx-depth": &c.RxDepth} {
		if !cmd.Flags().Changed(flag) {
			*value = 0 // the service decides
		}
	}
	if !c.Test.Serves(c.Service) {
		return c, usagef("-c %v: %v runs over %s only", c.Service, c.Test, servicesOf(c.Test))
	}
	if f.inspect.cc != "" && !c.Service.Reliable() {
		return c, usagef("--congestion %s: %v has no congestion control, as nothing tells it of congestion: use --rate_limit", f.inspect.cc, c.Service)
	}
	if err := f.checkCounts(cmd, &c); err != nil {
		return c, err
	}
	if err := f.setDuration(cmd, &c); err != nil {
		return c, err
	}
	f.outJSON = f.outJSON || cmd.Flags().Changed("out_json_file")
	if err := f.checkReport(c); err != nil {
		return c, err
	}
	if c.AllSizes && cmd.Flags().Changed("size") {
		return c, usagef("-a and -s do not go together: use all sizes, or one")
	}
	if f.timeout < 1 || f.timeout > 31 {
		return c, usagef("-u %d: a QP timeout is a number from 1 to 31", f.timeout)
	}
	c.Timeout = f.timeout
	if err := f.setCM(cmd, &c); err != nil {
		return c, err
	}
	if c.RateLimit, err = f.rateLimit(cmd); err != nil {
		return c, err
	}
	switch strings.ToUpper(f.atomic) {
	case "", "FETCH_AND_ADD":
	case "CMP_AND_SWAP":
		c.Atomic = perftest.CompareSwap
	default:
		return c, usagef("-A %s: the atomic operations are FETCH_AND_ADD and CMP_AND_SWAP", f.atomic)
	}
	return c, nil
}

func (f *perfFlags) registerCM(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVarP(&f.cmAll, "rdma_cm", "R", false, "connect the queue pairs by the connection manager, RC only, without TCP (give it to both sides)")
	fs.BoolVarP(&f.cmComm, "com_rdma_cm", "z", false, "exchange addresses over a queue pair of the connection manager instead of TCP (give it to both sides)")
	fs.IntVarP(&f.tos, "tos", "T", 0, "with -R: type of `service`, the same as --tclass")
	fs.Uint8Var(&f.retries, "retry_count", 7, "with -R: how `often` a request is sent again")
}

// setCM takes over what is about the connection manager.
func (f *perfFlags) setCM(cmd *cobra.Command, c *perftest.Config) error {
	switch {
	case f.cmAll:
		c.CM = perftest.CMAll
	case f.cmComm:
		c.CM = perftest.CMControl
	}
	for _, flag := range []string{"tos", "retry_count"} {
		if cmd.Flags().Changed(flag) && !f.cmAll {
			return usagef("--%s: it applies only to the connection manager (-R): use --tclass; the retry count is 7 without", flag)
		}
	}
	for _, flag := range []string{"listen", "source_ip", "peer-gid"} {
		if cmd.Flags().Changed(flag) && c.CM != perftest.NoCM {
			return usagef("--%s: with -R and -z there is no TCP connection: the device's address is the only one", flag)
		}
	}
	if f.tos < 0 || f.tos > 255 {
		return usagef("-T %d: a type of service is a number from 0 to 255", f.tos)
	}
	c.RetryCount = verbs.Set(f.retries)
	return nil
}

func (f *perfFlags) registerRate(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Float64Var(&f.rate, "rate_limit", 0, "send at most this `rate` on each queue pair, headers counted, in the unit of --rate_units (default: no limit)")
	fs.StringVar(&f.units, "rate_units", "g", "`unit` of --rate_limit: g for Gb/s, M for MiB/s")
}

// rateLimit returns the bits per second of --rate_limit, or 0.
func (f *perfFlags) rateLimit(cmd *cobra.Command) (uint64, error) {
	if !cmd.Flags().Changed("rate_limit") {
		if cmd.Flags().Changed("rate_units") {
			return 0, usagef("--rate_units without --rate_limit: there is no rate to limit to")
		}
		return 0, nil
	}
	unit := map[string]float64{"g": 1e9, "M": 8 << 20}[f.units]
	if unit == 0 {
		return 0, usagef("--rate_units %s: the units are g (Gb/s) and M (MiB/s)", f.units)
	}
	const most = math.MaxUint32 * 1000.
	if rate := f.rate * unit; rate >= 1000 && rate <= most {
		return uint64(rate), nil
	}
	return 0, usagef("--rate_limit %v: a rate is a number of %s from %g to %g", f.rate, unitNames[f.units], 1000/unit, most/unit)
}

var unitNames = map[string]string{"g": "Gb/s", "M": "MiB/s"}

// checkCounts refuses numbers below 1 that were given; without a flag such a
// number stands for a choice.
func (f *perfFlags) checkCounts(cmd *cobra.Command, c *perftest.Config) error {
	for _, n := range []struct {
		flag string
		got  int
	}{
		{"size", c.Size}, {"iters", c.Iterations}, {"qp", c.QPs}, {"tx-depth", c.TxDepth}, {"rx-depth", c.RxDepth},
		{"outs", c.OutstandingReads}, {"mtu", f.mtu}, {"cq-mod", c.CQMod}, {"post_list", c.PostList}, {"recv_post_list", c.RecvPostList},
	} {
		if cmd.Flags().Changed(n.flag) && n.got < 1 {
			return usagef("--%s %d: it must be at least 1", n.flag, n.got)
		}
	}
	return nil
}

// setDuration takes over what bounds the run in time.
func (f *perfFlags) setDuration(cmd *cobra.Command, c *perftest.Config) error {
	if cmd.Flags().Changed("duration") {
		if !(f.seconds >= 0.1 && f.seconds <= 1e6) {
			return usagef("-D %v: a duration is a number of seconds from 0.1 to 1000000", f.seconds)
		}
		if cmd.Flags().Changed("iters") {
			return usagef("-D and -n do not go together: time or iterations limit a run, not both")
		}
		c.Duration = time.Duration(f.seconds * float64(time.Second))
	}
	if cmd.Flags().Changed("margin") {
		if !(f.margin > 0 && f.margin < 1e6) || c.Duration == 0 {
			return usagef("-f %v: a margin is a number of seconds at both ends of -D", f.margin)
		}
		c.Margin = time.Duration(f.margin * float64(time.Second))
	}
	if c.Endless && cmd.Flags().Changed("iters") {
		return usagef("--run_infinitely and -n do not go together")
	}
	return nil
}

// openFor opens the device, and returns how the test finds its peer: over TCP,
// or by the connection manager.
func (f *perfFlags) openFor(ctx context.Context, in *inspector, server string, c perftest.Config) (*verbs.Device, func(context.Context, perftest.Config) ([]perftest.Result, error), error) {
	if c.CM == perftest.NoCM {
		dev, at, err := f.open(ctx, in, server, c.Check)
		return dev, func(ctx context.Context, c perftest.Config) ([]perftest.Result, error) {
			if server == "" {
				return perftest.Serve(ctx, dev, at.ln, c)
			}
			return perftest.Run(ctx, dev, at.conn, interop.Client, c)
		}, err
	}
	dev, err := openDevice(in.streams, f.device, server, in.open)
	if err != nil {
		return nil, nil, err
	}
	if err := c.Check(dev); err != nil {
		return dev, nil, err
	}
	at := netip.AddrPortFrom(dev.Addr(), uint16(f.port))
	if server == "" {
		return dev, func(ctx context.Context, c perftest.Config) ([]perftest.Result, error) {
			c.OnListen = func() {
				fmt.Fprintf(in.streams.err, "waiting on port %d of the connection manager for clients of device %v\n", f.port, dev.Addr())
			}
			return perftest.ServeCM(ctx, dev, at, c)
		}, nil
	}
	to, err := resolve(ctx, server, func(a netip.Addr) bool { return a.Is4() == dev.Addr().Unmap().Is4() })
	at = netip.AddrPortFrom(to, uint16(f.port))
	return dev, func(ctx context.Context, c perftest.Config) ([]perftest.Result, error) {
		return perftest.RunCM(ctx, dev, at, c)
	}, err
}

func runPerf(ctx context.Context, io streams, f *perfFlags, server string, cmd *cobra.Command) (err error) {
	c, err := f.config(cmd)
	if err != nil {
		return err
	}
	if c.TLS, err = f.tls.of(&f.inspect, server); err != nil {
		return err
	}
	in, err := f.inspect.begin(io)
	if err != nil {
		return err
	}
	io = in.streams
	if c.TrafficClass = in.trafficClass(); f.tos != 0 {
		c.TrafficClass = uint8(f.tos)
	}
	ctx, cancel := f.limit(ctx)
	defer cancel()
	defer func() { err = in.end(err) }()
	dev, meet, err := f.openFor(ctx, in, server, c)
	if err != nil {
		return err
	}
	p := newProgress(io, f.progress)
	out := f.printer(io.out, c, dev.Addr().String(), f.gidIndex)
	c.OnRefused = refused(io)
	c.OnStart = func(s perftest.Setup) { tellSecured(io, s.Secured); out.start(s) }
	c.OnResult = func(r perftest.Result) {
		p.clear()
		out.result(r)
	}
	c.OnProgress = func(size int, done, total uint64) {
		p.show(fmt.Sprintf("%v %d bytes", c.Test, size), done, total)
	}
	res, err := meet(ctx, c)
	p.clear()
	if c.Endless && len(res) > 0 && errors.Is(err, context.Canceled) {
		err = nil // the user has seen enough
	}
	if err != nil {
		return err
	}
	if c.Test.Kind == perftest.Latency && len(res) == 0 {
		fmt.Fprintln(io.err, "the client has the figures of this test: see there")
	}
	if err := out.end(); err != nil {
		return err
	}
	in.sayWay()
	return f.limits(res)
}
