package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/fabric/replay"
	"github.com/gosoftroce/rocev2/observe/dissect"
)

// dumpFlags are the flags of dump.
type dumpFlags struct {
	iface       string
	filter      string
	count       uint64
	verbose     bool
	hex         bool
	json        bool
	stats       string // statsText or statsJSON
	connections bool
	chart       string
	connection  int
	arrows      int
	columns     int
	write       string
	keys        string
	plain       bool
	scenario    string
}

const dumpLong = `Show the RoCEv2 packets of a capture, and what they mean together.

FILE is a capture, pcap or pcapng, from tcpdump, Wireshark or --pcap; - means
standard input. With -i the packets of a network interface are captured as they
pass; "any" means all interfaces. That needs CAP_NET_RAW.

Each packet is one line: number of the frame, seconds since the first one,
addresses, connection, opcode, destination queue pair, PSN, what its headers
say, which message it belongs to, what it completes and after which time, and in
brackets what is particular: sent again and why, packets missing in front of it,
a wrong ICRC, congestion.

Queue pairs are paired into connections by connection management, or, where the
capture has none of it, by the PSNs that one side acknowledges to the other.
The ICRC is checked with the IP header of the packet. Where a host captured its
own packets before segmentation offload, the buffers are taken apart again.

Packets of secured connections are sealed. They still show the queue pair that
they go to, which of its keys they have (generation), their number (iv) and
their length. With --keys, a key log, they are opened and shown as others are.
"rocev2 perf" and "region" write one with --tls-keylog, programs where their TLS
configuration has a KeyLogWriter.

The filter chooses what is shown. The analysis sees all packets.`

const dumpExample = `  rocev2 dump trace.pcapng                             a line for each packet
  rocev2 dump trace.pcap -v -f 'cm or nak'             connection management and NAKs in full
  rocev2 dump trace.pcap -f 'retransmitted or gap'     what went wrong
  rocev2 dump trace.pcap --stats                       counters of opcodes and connections
  rocev2 dump trace.pcap --connections                 who talked to whom
  rocev2 dump trace.pcap --chart - --connection 2      the sequence of connection 2 in the terminal
  rocev2 dump trace.pcap --chart seq.svg               the same as a picture
  rocev2 dump trace.pcap --scenario again.toml         play it in virtual time: rocev2 sim again.toml
  rocev2 dump trace.pcap --json | jq '."infiniband.bth.psn"'
  rocev2 dump trace.pcap --keys keys.log               open what is sealed
  sudo rocev2 dump -i eth0 -f 'host 192.0.2.7'         live
  rocev2 pingpong --pcap - 192.0.2.7 | rocev2 dump -   own packets, without privileges`

func newDump(io streams) *cobra.Command {
	var f dumpFlags
	cmd := &cobra.Command{
		Use:     "dump [FILE | -i INTERFACE]",
		Short:   "Show and explain the packets of a capture, or of an interface",
		Long:    dumpLong + "\n\n" + dissect.FilterGrammar + "\n\n" + filterTerms(),
		Example: dumpExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("you can name one capture, not %d: %q (a filter is one word: quote it after -f)", len(args), args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), io, args) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.iface, "interface", "i", "", "capture on the network interface `NAME`, or on all of them with \"any\"")
	fs.StringVarP(&f.filter, "filter", "f", "", "show only the packets that fit `FILTER`")
	fs.Uint64VarP(&f.count, "count", "c", 0, "end after `N` packets that fit; 0 means never")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "show all fields of a packet")
	fs.BoolVarP(&f.hex, "hex", "x", false, "show payloads, too; implies -v")
	fs.BoolVar(&f.json, "json", false, "print one JSON object for each packet, with the names of tshark's fields; the same of --stats and --connections")
	fs.Var(statsFlag{&f.stats}, "stats", "print counters of opcodes and connections at the end, instead of packets; --stats=json as JSON")
	fs.Lookup("stats").NoOptDefVal = statsText
	fs.BoolVar(&f.connections, "connections", false, "list the connections at the end, instead of packets")
	fs.StringVar(&f.chart, "chart", "", "draw the sequence chart of a connection to `FILE` as SVG, instead of packets; - draws it in the terminal")
	fs.IntVar(&f.connection, "connection", 0, "draw the chart of connection `N`; by default the first one that fits")
	fs.IntVar(&f.arrows, "arrows", dissect.DefaultArrows, "draw at most `N` arrows")
	fs.IntVar(&f.columns, "columns", 100, "draw --chart - in `N` columns")
	fs.StringVar(&f.scenario, "scenario", "", "write the flows, losses and marks of what fits to `FILE` as a scenario for rocev2 sim, instead of lines; - prints it")
	fs.StringVar(&f.keys, "keys", "", "open sealed packets with the keys in `FILE`, a key log that may still be written")
	fs.StringVarP(&f.write, "write", "w", "", "write the frames of the packets that fit to `FILE` as pcapng, instead of lines")
	fs.BoolVar(&f.plain, "plain", false, "with --write, write what was opened as if it had come in clear, for Wireshark: the file has the secrets")
	return cmd
}

// filterTerms lists the fields and flags of filters.
func filterTerms() string {
	var b strings.Builder
	for _, flags := range []bool{false, true} {
		title := "Fields, with an example:"
		if flags {
			title = "\nFlags:"
		}
		fmt.Fprintln(&b, title)
		for _, term := range dissect.FilterTerms(flags) {
			fmt.Fprintf(&b, "  %-22s %s\n", term[0], term[1])
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// check looks for flags that do not fit together.
func (f *dumpFlags) check(args []string) error {
	switch {
	case len(args) == 0 && f.iface == "":
		return usagef("dump needs a capture file, - for standard input, or -i INTERFACE to capture")
	case len(args) > 0 && f.iface != "":
		return usagef("dump reads %s or captures on %s, not both", args[0], f.iface)
	case f.connection < 0 || f.connection > 0 && f.chart == "":
		return usagef("--connection N says which connection --chart draws; to show its packets: -f 'connection N'")
	case f.arrows < 1 || f.arrows > 100000:
		return usagef("--arrows %d: write a number from 1 to 100000", f.arrows)
	case f.columns < 60 || f.columns > 1000:
		return usagef("--columns %d: write a number from 60 to 1000", f.columns)
	case f.plain && f.write == "":
		return usagef("--plain is for --write: it says how that writes what was opened")
	case f.stats != "" && f.stats != statsText && f.stats != statsJSON:
		return usagef("--stats=%s: write --stats or --stats=json", f.stats)
	case f.json && (f.verbose || f.hex):
		return usagef("--json has all fields already: leave out -v and -x")
	}
	return nil
}

// quiet reports whether packets are not shown.
func (f *dumpFlags) quiet() bool {
	return f.stats != "" || f.connections || f.chart != "" || f.write != "" || f.scenario != ""
}

func (f *dumpFlags) run(ctx context.Context, s streams, args []string) error {
	if err := f.check(args); err != nil {
		return err
	}
	d := &dumper{dumpFlags: f, out: bufio.NewWriterSize(s.out, 1<<16), err: s.err, chart: dissect.NewChart(f.connection, f.arrows)}
	if f.filter != "" {
		filter, err := dissect.ParseFilter(f.filter)
		if err != nil {
			return usagef("%w (\"rocev2 dump --help\" explains filters)", err)
		}
		d.filter = filter
	}
	source, name, err := d.open(ctx, s, args)
	if err != nil {
		return err
	}
	defer d.close()
	if f.write != "" {
		if err := d.create(f.write); err != nil {
			return err
		}
	}
	if f.scenario != "" {
		d.replay = replay.New()
	}
	capture := dissect.New(source, dissect.Limits{})
	if err := d.follow(capture.Keys()); err != nil {
		return err
	}
	reading := d.read(ctx, capture)
	if reading != nil {
		reading = fmt.Errorf("%s: %w", name, reading)
	}
	return errors.Join(reading, d.end())
}

// open opens what is to be read, and names it.
func (d *dumper) open(ctx context.Context, s streams, args []string) (dissect.Source, string, error) {
	if d.iface != "" {
		live, err := openLive(ctx, d.iface)
		if err != nil {
			return nil, "", err
		}
		d.closers = append(d.closers, func() error { return live.report(s.err) })
		d.live = true
		fmt.Fprintf(s.err, "capturing RoCEv2 on %s; end with Ctrl-C\n", d.iface)
		return live, d.iface, nil
	}
	name := args[0]
	var input io.Reader
	if name == "-" {
		name, input, d.live = "standard input", &interruptible{ctx: ctx, r: s.in}, true
	} else {
		file, err := os.Open(name)
		if err != nil {
			return nil, "", err
		}
		d.closers = append(d.closers, file.Close)
		input = file
	}
	source, err := dissect.OpenFile(input)
	if err != nil {
		d.close()
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	return source, name, nil
}

// interruptible is a reader that ends when a context does.
type interruptible struct {
	ctx  context.Context
	r    io.Reader
	ch   chan []byte
	err  error // after the last of ch
	rest []byte
}

// Read reads. Another goroutine waits for the data, since nothing can interrupt
// that; it ends with the process at the latest.
func (r *interruptible) Read(b []byte) (int, error) {
	if r.ch == nil {
		r.ch = make(chan []byte)
		go r.pump()
	}
	if len(r.rest) == 0 {
		var ok bool
		select {
		case r.rest, ok = <-r.ch:
			if !ok {
				return 0, r.err
			}
		case <-r.ctx.Done():
			return 0, io.EOF
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *interruptible) pump() {
	defer close(r.ch)
	for {
		b := make([]byte, 1<<16)
		n, err := r.r.Read(b)
		if n > 0 {
			select {
			case r.ch <- b[:n]:
			case <-r.ctx.Done():
				return
			}
		}
		if err != nil {
			r.err = err
			return
		}
	}
}
