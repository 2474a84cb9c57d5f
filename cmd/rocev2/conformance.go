package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/observe/conformance"
	"github.com/gosoftroce/rocev2/observe/conformance/target"
	"github.com/gosoftroce/rocev2/transport/udp"
	"github.com/gosoftroce/rocev2/verbs"
)

// conformancePort is the TCP port of targets.
const conformancePort = 18520

// conformanceFlags are the flags of conformance.
type conformanceFlags struct {
	device  string
	port    int
	run     []string
	list    bool
	serve   bool
	helper  bool
	out     string
	kind    string
	cm      int
	again   int
	json    bool
	timeout time.Duration
	quiet   time.Duration
	limit   time.Duration
}

func newConformance(io streams) *cobra.Command {
	f := conformanceFlags{port: conformancePort}
	cmd := &cobra.Command{
		Use:   "conformance HOST",
		Short: "Test whether a RoCEv2 peer keeps the rules of the standard",
		Long: `Test a RoCEv2 peer, rule by rule: an adapter, an FPGA, a simulator, a kernel, or
this software. For every rule the peer makes a queue pair; packets are sent to
it that are made by hand, many of them wrong, and its answers are compared with
what the standard asks for. The report says of each rule what was sent, what was
expected and what came, with a capture.

On the peer's host a target makes the queue pairs: "rocev2 conformance --serve"
for this software, or the program that "rocev2 conformance --helper" prints, in
C, for every device that libibverbs knows:

  rocev2 conformance --helper > target.c && cc -O2 -o target target.c -libverbs
  ./target -d rxe0 -g 1

Without a target, --cm tests the rules for which a connection is enough, with
any program that takes connections by the connection manager, such as rping -s
-P, which listens on port 7174.

The UDP port 4791 of the local address must be free. Test peers that are not in
use: the packets are meant to provoke faults.

The verdicts are pass, fail, deviation known (of peers of this kind, see --kind)
and not tested, with the reason. Exit status: 1 if a rule has failed or nothing
could be tested, else 0.`,
		Example: `  rocev2 conformance --serve -d 192.0.2.7           the target of this software
  rocev2 conformance 192.0.2.7                      all rules
  rocev2 conformance --run 'read/*' -o report 192.0.2.7
  rocev2 conformance --cm 7174 192.0.2.7            against rping -s -P
  rocev2 conformance --list`,
		Args: atMostOne("host"),
		RunE: func(cmd *cobra.Command, args []string) error { return f.command(cmd.Context(), io, first(args)) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.VarP(deviceFlag{&f.device}, "device", "d", deviceUsage+" (default: the address that leads to the peer)")
	fs.IntVarP(&f.port, "port", "p", f.port, "TCP port of the target")
	fs.IntVar(&f.cm, "cm", 0, "connect to a program that listens on this RDMA-CM `port`, instead of asking a target")
	fs.StringSliceVar(&f.run, "run", nil, "test the rules whose names fit a `pattern` with * and ?; may be repeated")
	fs.BoolVar(&f.list, "list", false, "print the rules and end")
	fs.StringVarP(&f.out, "out", "o", "", "write report.html, report.md, report.json and a capture for each rule that has not passed into a `directory`")
	fs.BoolVar(&f.json, "json", false, "print the report as a JSON object")
	fs.StringVar(&f.kind, "kind", "", "take the known deviations of this `kind` of peer, such as linux-rxe, as no failures; none: of no kind (default: the kind that the target tells)")
	fs.DurationVar(&f.timeout, "timeout", 2*time.Second, "how long to wait for an answer")
	fs.DurationVar(&f.quiet, "quiet", 200*time.Millisecond, "how long a peer must be silent where it may not answer")
	fs.DurationVar(&f.limit, "limit", 0, "how long one rule may take (default: 30s, or four times --timeout)")
	fs.IntVar(&f.again, "again", 0, "how often to try a rule again that has failed: for a network that loses packets")
	fs.BoolVar(&f.serve, "serve", false, "be the target of this software, on the device, until interrupted")
	fs.BoolVar(&f.helper, "helper", false, "print the source of a target for libibverbs, in C, and end")
	return cmd
}

func (f *conformanceFlags) command(ctx context.Context, io streams, host string) error {
	rules, err := conformance.Select(f.run)
	if err != nil {
		return usageError{err}
	}
	for name, d := range map[string]time.Duration{"timeout": f.timeout, "quiet": f.quiet, "limit": f.limit} {
		if d < 0 || d == 0 && name != "limit" {
			return usagef("--%s %v: it must be positive", name, d)
		}
	}
	if err := checkPort(f.port); err != nil {
		return err
	}
	if f.again < 0 || f.again > 100 {
		return usagef("--again %d: it is from 0 to 100", f.again)
	}
	if f.cm < 0 || f.cm > 65535 {
		return usagef("--cm %d: a port is a number from 1 to 65535", f.cm)
	}
	alone := 0
	for _, b := range []bool{f.list, f.serve, f.helper, host != ""} {
		if b {
			alone++
		}
	}
	switch {
	case alone != 1:
		return usagef("name a host to test, or give one of --list, --serve and --helper")
	case f.list:
		return f.printRules(io, rules)
	case f.helper:
		_, err := fmt.Fprint(io.out, conformance.Helper)
		return err
	case f.serve:
		return f.serveTarget(ctx, io)
	}
	return f.test(ctx, io, host, rules)
}

func (f *conformanceFlags) printRules(io streams, rules []conformance.Rule) error {
	if f.json {
		return printJSON(io.out, rules)
	}
	chapter := ""
	for _, r := range rules {
		if r.Chapter != chapter {
			chapter = r.Chapter
			fmt.Fprintf(io.out, "%s\n", chapter)
		}
		fmt.Fprintf(io.out, "  %-30s %-6s %s (%s)\n", r.ID, r.Severity, r.Text, r.Spec)
	}
	return nil
}

// serveTarget is the other side, until ctx ends.
func (f *conformanceFlags) serveTarget(ctx context.Context, io streams) error {
	dev, err := openDevice(io, f.device, "", openPlain)
	if err != nil {
		return err
	}
	defer dev.Close()
	ln, err := net.Listen("tcp", net.JoinHostPort(dev.Addr().String(), strconv.Itoa(f.port)))
	if err != nil {
		return err
	}
	fmt.Fprintf(io.err, "target on device %v, waiting on TCP port %d\n", dev.Addr(), f.port)
	return target.Serve(ctx, dev, ln, target.Config{Release: buildVersion()})
}

// test runs the rules against a host.
func (f *conformanceFlags) test(ctx context.Context, io streams, host string, rules []conformance.Rule) error {
	peer, err := resolvePeer(ctx, host, f.device)
	if err != nil {
		return err
	}
	if f.out != "" { // what is wrong with it is said before the test, not after
		if err := os.MkdirAll(f.out, 0o755); err != nil {
			return err
		}
	}
	link, err := f.openLink(io, peer)
	if err != nil {
		return err
	}
	c := conformance.Config{
		Rules: rules, Link: link, Listener: uint16(f.cm), Peer: peer, Timeout: f.timeout, Quiet: f.quiet, Limit: f.limit, Kind: f.kind, Again: f.again,
		Dial: func(ctx context.Context) (net.Conn, error) {
			// From the address that packets come from: a target may
			// insist on that.
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: link.Addr().AsSlice(), Zone: link.Addr().Zone()}}
			return d.DialContext(ctx, "tcp", net.JoinHostPort(peer.String(), strconv.Itoa(f.port)))
		},
	}
	if !f.json {
		c.OnResult = func(r *conformance.Result) { fmt.Fprint(io.out, r.Text()) }
	}
	report, err := conformance.Run(ctx, c)
	if report == nil {
		return err
	}
	if err := errors.Join(err, f.show(io, report)); err != nil {
		return err
	}
	switch {
	case report.Count(conformance.Fail) > 0:
		return statusError{status: exitFailure}
	case report.Count(conformance.NotTested) == len(report.Results):
		return errors.New("nothing could be tested")
	}
	return nil
}

// show writes the report to where it is wanted.
func (f *conformanceFlags) show(io streams, report *conformance.Report) error {
	var failed error
	if f.out != "" {
		failed = report.WriteDir(f.out)
	}
	if f.json {
		return errors.Join(failed, report.WriteJSON(io.out))
	}
	_, err := fmt.Fprintf(io.out, "\n%s\n%s\n", report.Peer(), report.Summary())
	return errors.Join(failed, err)
}

// openLink opens the UDP port that packets are sent from. Where the peer is on
// this host, that is one of a free loopback address.
func (f *conformanceFlags) openLink(io streams, peer netip.Addr) (*udp.Link, error) {
	config := udp.Config{DisableGSO: true, DisableGRO: true}
	if f.device != "" {
		addr, err := verbs.ResolveAddr(f.device)
		if err != nil {
			return nil, err
		}
		return udp.Open(addr, config)
	}
	addr, err := routeTo(peer.String())
	if err != nil {
		return nil, fmt.Errorf("find the way to %v: %w", peer, err)
	}
	link, err := udp.Open(addr, config)
	for range 32 {
		if !errors.Is(err, syscall.EADDRINUSE) || !here(peer.String()) {
			break
		}
		if !addr.IsLoopback() {
			addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		addr = addr.Next()
		link, err = udp.Open(addr, config)
	}
	if err == nil {
		fmt.Fprintf(io.err, "from %v (-d chooses another)\n", addr)
	}
	return link, err
}
