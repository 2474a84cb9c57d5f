package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/fault"
	"github.com/gosoftroce/rocev2/transport/tap"
	"github.com/gosoftroce/rocev2/verbs"
)

// opener opens a device on a local address.
type opener func(netip.Addr) (*verbs.Device, error)

func openPlain(addr netip.Addr) (*verbs.Device, error) { return verbs.OpenAddr(addr, verbs.Config{}) }

// inspectFlags are the flags that record, count and disturb the packets of a
// device.
type inspectFlags struct {
	pcap   string
	trace  string
	faults []string
	stats  string
	tclass int
	shm    bool
	cc     string
	flags  *pflag.FlagSet
	seals  bool // the device can seal packets: the command's connection is to be secured
}

func (f *inspectFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.flags = fs
	fs.StringVar(&f.pcap, "pcap", "", "record all packets of this side, in both directions, to `FILE` as pcapng; - means standard output, and the results then go to standard error")
	fs.StringVar(&f.trace, "trace", "", "write what the queue pairs of this side decide to `FILE`: packets sent and lost and why, windows, timers; ui.perfetto.dev shows it")
	fs.StringArrayVar(&f.faults, "fault", nil, "inject the fault of `RULE` into the packets of this side: drop=1%, drop:nth=100:dir=in, delay=10%:by=5ms ...; may be repeated; \"rocev2 faults\" explains the rules")
	fs.Var(statsFlag{&f.stats}, "stats", "at the end, print the counters that are not zero to standard error; --stats=json prints all counters as a line of JSON to standard output")
	fs.Lookup("stats").NoOptDefVal = statsText
	fs.BoolVar(&f.shm, "shm", false, "exchange packets with processes of this user on this host that have --shm, too, through shared memory; captures of the interface do not see those")
	fs.StringVar(&f.cc, "congestion", "", "congestion `control` of this side: window (default), static, dcqcn, dcqcn-adapter, dcqcn-host, swift or timely, with options such as dcqcn-host,line=25G; see --tclass for ECN")
	fs.IntVar(&f.tclass, "tclass", 0, "traffic `class` of the packets that this side sends, 0 to 255: 4 × DSCP + ECN")
}

// statsFlag is a text that may be left out. Without a type of its own the help
// does not show it as one that must follow.
type statsFlag struct{ value *string }

func (f statsFlag) String() string     { return "" }
func (f statsFlag) Type() string       { return "" }
func (f statsFlag) Set(s string) error { *f.value = s; return nil }

const (
	statsText = "text"
	statsJSON = "json"

	pcapStdout = "-"
)

// inspector is what the flags ask for, around the device of a command.
type inspector struct {
	streams // for the command to use: out is standard error while the capture has standard output

	flags  *inspectFlags
	rules  fault.Spec
	stdout io.Writer
	extra  []report // of other processes

	device *verbs.Device
	faults *fault.Link
	tap    *tap.Link
	trace  *traceFile
	file   *os.File // of the capture, if not standard output
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

// begin checks the flags. When the command is done it must call end.
func (f *inspectFlags) begin(s streams) (*inspector, error) {
	i := &inspector{streams: s, flags: f, stdout: s.out, stop: func() {}}
	for _, text := range f.faults {
		if err := i.rules.Add(text); err != nil {
			return nil, usagef("--fault: %w (\"rocev2 faults\" explains the rules)", err)
		}
	}
	switch {
	case len(f.faults) > 0 && len(i.rules.Rules) == 0:
		return nil, usagef("--fault %s: a seed without a rule does nothing: add a rule, such as --fault drop=1%%", f.faults[0])
	case f.stats != "" && f.stats != statsText && f.stats != statsJSON:
		return nil, usagef("--stats=%s: write --stats or --stats=json", f.stats)
	case f.tclass < 0 || f.tclass > 255:
		return nil, usagef("--tclass %d: a traffic class is a number from 0 to 255", f.tclass)
	case f.shm && f.seals:
		return nil, usagef("--shm: packets through shared memory are not sealed: a secured connection goes without")
	case verbs.CheckCongestion(f.cc) != nil:
		return nil, usagef("--congestion: %w", verbs.CheckCongestion(f.cc))
	case f.pcap == "" && f.flags.Changed("pcap"):
		return nil, usagef("--pcap has no file: name one, or - for standard output")
	case f.pcap == pcapStdout && isTerminal(s.out):
		return nil, usagef("--pcap -: standard output is a terminal: redirect it, for example to wireshark -k -i -")
	}
	if f.pcap == pcapStdout {
		i.out = s.err
	}
	if f.flags.Changed("trace") {
		var err error
		if i.trace, err = createTrace(f.trace); err != nil {
			return nil, err
		}
	}
	if strings.HasPrefix(f.cc, "dcqcn") && f.tclass&3 == 0 {
		fmt.Fprintf(s.err, "note: --congestion %s goes by packets that the network marks, and those of this side may not be marked: add ECN, such as --tclass 106\n", f.cc)
	}
	if len(i.rules.Rules) > 0 && !i.rules.Seeded {
		i.rules.Seed = uint64(rand.Uint32())
	}
	return i, nil
}

// isTerminal reports whether a person sees what is written. The null device is
// a character device too, but no terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(st, null)
}

// open opens the device, with what the flags ask for between it and its socket.
// The capture is next to the socket: it shows what a capture on the wire would.
func (i *inspector) open(addr netip.Addr) (dev *verbs.Device, err error) {
	cfg := verbs.Config{SharedMemory: i.flags.shm, Congestion: i.flags.cc, Sealing: i.flags.seals}
	if i.trace != nil {
		cfg.Trace = i.trace
	}
	if i.flags.pcap != "" || len(i.rules.Rules) > 0 {
		cfg.Wrap = func(link verbs.Link) verbs.Link { return i.wrap(link, &err) }
	}
	dev, openErr := verbs.OpenAddr(addr, cfg)
	if openErr != nil {
		return nil, openErr
	}
	if err != nil { // of wrap
		dev.Close()
		return nil, err
	}
	i.device = dev
	return dev, nil
}

// wrap puts what the flags ask for around a link.
func (i *inspector) wrap(link verbs.Link, err *error) verbs.Link {
	if i.flags.pcap != "" {
		if *err = i.capture(link); *err != nil {
			return link
		}
		link = i.tap
	}
	if len(i.rules.Rules) > 0 {
		i.faults = fault.New(link, i.rules.Seed, i.rules.Rules...)
		fmt.Fprintf(i.err, "faults on %v: %s; to repeat them: --fault seed=%d\n", link.Addr(), strings.Join(i.ruleTexts(), ", "), i.rules.Seed)
		link = i.faults
	}
	return link
}

// sayWay says how many packets did not go by UDP, because the interface does
// not show them; or that all did, where others were asked for.
func (i *inspector) sayWay() {
	switch st := i.device.Stats().Link; {
	case i.flags.shm && st.TxShm+st.RxShm == 0:
		fmt.Fprintln(i.err, "no packet went through shared memory: the peer is not a process of this user on this host, in the same network namespace, with --shm, too; or both were done before they had agreed")
	case st.TxShm+st.RxShm > 0:
		fmt.Fprintf(i.err, "%d of %d packets sent and %d of %d received went through shared memory\n",
			st.TxShm, st.TxPackets, st.RxShm, st.RxPackets)
	}
}

// ruleTexts returns the rules as they were given.
func (i *inspector) ruleTexts() (list []string) {
	for _, text := range i.flags.faults {
		if !strings.HasPrefix(text, "seed=") {
			list = append(list, text)
		}
	}
	return list
}

// flushEvery is how old the end of a capture gets: a user may watch it, and the
// process may be killed.
const flushEvery = 200 * time.Millisecond

// capture begins the capture of a link; end closes the file.
func (i *inspector) capture(link transport.Link) (err error) {
	to := i.stdout
	if i.flags.pcap != pcapStdout {
		if i.file, err = os.Create(i.flags.pcap); err != nil {
			return fmt.Errorf("--pcap: %w", err)
		}
		to = i.file
	}
	i.tap, err = tap.New(link, to)
	if err == nil {
		err = i.tap.Flush()
	}
	if err != nil {
		return i.captureError(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	i.stop = stop
	i.wg.Go(func() {
		tick := time.NewTicker(flushEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = i.tap.Flush() // end asks again
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}

func (i *inspector) captureError(err error) error {
	return fmt.Errorf("--pcap %s: the capture is not complete: %w", i.flags.pcap, err)
}

func (i *inspector) closeFile() error {
	if i.file == nil {
		return nil
	}
	return i.file.Close()
}

// end closes the device, completes the capture and prints the counters. It
// returns err, what the command has come to, or if that is nil what went wrong
// here.
func (i *inspector) end(err error) error {
	i.stop()
	i.wg.Wait()
	if i.device == nil {
		return errors.Join(err, i.closeFile(), i.trace.close())
	}
	i.device.Close() // the errors of the trace and the capture are asked for below
	own := i.trace.close()
	if i.tap != nil {
		if e := errors.Join(i.tap.Flush(), i.closeFile()); e != nil {
			own = errors.Join(own, i.captureError(e))
		}
	}
	if e := i.print(); e != nil && own == nil {
		own = e
	}
	if err != nil && own != nil {
		fmt.Fprintf(i.err, "rocev2: %v\n", own)
	}
	if err != nil {
		return err
	}
	return own
}

// trafficClass returns what --tclass asks for.
func (i *inspector) trafficClass() uint8 { return uint8(i.flags.tclass) }

func newFaults(io streams) *cobra.Command {
	return &cobra.Command{
		Use:   "faults [RULE]...",
		Short: "Explain the rules of --fault, or check rules",
		Long: `With --fault RULE, the commands pingpong, perf and demo treat the packets of
their device as a bad network does. A RULE has this form:

` + fault.Grammar + `

All random choices come from one seed, and the command prints it. With the same
seed, the same rules hit the same packets again, as far as the packets come in
the same order.

This command checks the rules that you give it, and prints how it understood
them.`,
		Example: `  rocev2 demo --fault drop=1%                             lose one packet of 100 in each direction
  rocev2 demo --fault drop=1% --fault seed=7              lose the same packets each time
  rocev2 pingpong --fault drop:opcode=ACK:dir=in:nth=10   lose the tenth acknowledgement
  rocev2 perf write_bw --fault reorder=0.1%:by=3          let three packets overtake some packets
  rocev2 perf read_bw --fault corrupt:every=1000:dir=in --fault delay:by=2ms:dir=in`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			var s fault.Spec
			for _, text := range args {
				if err := s.Add(text); err != nil {
					return usageError{err}
				}
			}
			for _, r := range s.Rules {
				if _, err := fmt.Fprintln(io.out, r); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
