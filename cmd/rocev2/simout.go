package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/record"
	htmlreport "github.com/gosoftroce/rocev2/fabric/report"
	"github.com/gosoftroce/rocev2/qp/trace"
)

// outputFlags say what else than the result of a run is written.
type outputFlags struct {
	pcap     []string
	snap     int
	perfetto string
}

func (f *outputFlags) register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.pcap, "pcap", nil, "write the packets of a `port` into the directory of --out: a host, as h3, h0-15 or all, or a port of a switch, as s1.4; may be repeated; the run takes one core")
	fs.IntVar(&f.snap, "snap", record.DefaultSnap, "`bytes` of each packet that --pcap writes; 0: all")
	fs.StringVar(&f.perfetto, "perfetto", "", "write flows, pauses, queues and losses over time to `FILE`, which ui.perfetto.dev shows; the run takes one core")
}

// outputs are the files of a run. Those that are written while it goes on are
// open.
type outputs struct {
	dir      string
	text     []byte // of the scenario
	claimed  bool   // the directory has been claimed for this run
	files    []string
	streams  []func() error // end what is written during the run
	captures map[string]*capture
	perfetto *traceFile
	instants *record.Instants
}

// capture is a file of --pcap.
type capture struct {
	*record.Pcap
	name string
	file *os.File
}

// outputs opens what can be opened before the run: what cannot be written shows
// early. It has the scenario keep what is to be written.
func (f *simFlags) outputs(cmd *cobra.Command, s *lab.Scenario, text []byte) (*outputs, error) {
	o := &outputs{dir: f.out, text: text}
	if err := f.files.check(cmd, f.out, s); err != nil {
		return nil, err
	}
	if f.out != "" {
		s.Output.Record = true
		again := exists(f.out, scenarioFile)
		if err := claim(f.out, text); err != nil {
			return nil, err
		}
		o.claimed = !again
	}
	if err := errors.Join(o.trace(cmd, f, s), o.pcap(&f.files, s)); err != nil {
		return nil, errors.Join(err, o.closeStreams(), o.abandon())
	}
	return o, nil
}

// abandon gives the directory back where nothing was played: the scenario may
// be put right, and played again.
func (o *outputs) abandon() error {
	var err error
	if o.perfetto != nil {
		err = o.perfetto.close()
	}
	if !o.claimed {
		return err
	}
	for _, name := range append(o.files, scenarioFile) {
		err = errors.Join(err, os.Remove(filepath.Join(o.dir, name)))
	}
	return err
}

func (f *outputFlags) check(cmd *cobra.Command, dir string, s *lab.Scenario) error {
	if len(f.pcap) == 0 {
		if cmd.Flags().Changed("snap") {
			return usagef("--snap is for --pcap, which is not there")
		}
		return nil
	}
	s.Output.Capture.Ports = strings.Join(f.pcap, " ")
	switch {
	case dir == "":
		return usagef("--pcap writes into the directory of --out: name one")
	case strings.TrimSpace(s.Output.Capture.Ports) == "":
		return usagef("--pcap has no port: it is a host, as h3, or a port of a switch, as s1.4")
	case f.snap < 0 || f.snap > 1<<16:
		return usagef("--snap is %d: it is 1 to %d, or 0 for all", f.snap, 1<<16)
	case f.snap > 0 && f.snap < leastSnap:
		return usagef("--snap is %d: that is less than the headers take, %d", f.snap, leastSnap)
	}
	if _, err := lab.CapturePorts(s); err != nil {
		return usagef("--pcap: %w", err)
	}
	return nil
}

// leastSnap is how long the headers of Ethernet, IPv4, UDP and a BTH are.
const leastSnap = 14 + 20 + 8 + 12

// trace opens the files of --trace and --perfetto, and has them told of what
// queue pairs decide.
func (o *outputs) trace(cmd *cobra.Command, f *simFlags, s *lab.Scenario) error {
	var takers []func(time.Duration, int, *trace.Event)
	if cmd.Flags().Changed("trace") {
		file, err := createTrace(f.trace)
		if err != nil {
			return err
		}
		w := trace.NewWriter(file)
		takers = append(takers, func(at time.Duration, host int, e *trace.Event) { w.Write(at, fmt.Sprintf("host %d", host), e) })
		o.streams = append(o.streams, func() error {
			w.Close() // the file has its error
			return file.close()
		})
	}
	if cmd.Flags().Changed("perfetto") {
		var err error
		if o.perfetto, err = createFile("--perfetto", f.files.perfetto); err != nil {
			return err
		}
		o.instants = new(record.Instants)
		s.Output.Record = true
		takers = append(takers, o.instants.Take)
	}
	if len(takers) > 0 {
		s.Trace = func(at time.Duration, host int, e *trace.Event) {
			for _, take := range takers {
				take(at, host, e)
			}
		}
	}
	return nil
}

// pcap opens the captures.
func (o *outputs) pcap(f *outputFlags, s *lab.Scenario) error {
	if s.Output.Capture.Ports == "" {
		return nil
	}
	names, err := lab.CapturePorts(s)
	if err != nil {
		return err
	}
	o.captures = map[string]*capture{}
	for _, port := range names {
		name := port + ".pcapng"
		file, err := os.Create(filepath.Join(o.dir, name))
		if err != nil {
			return fmt.Errorf("--pcap: %w", err)
		}
		o.streams = append(o.streams, func() error { return o.captures[port].close() })
		c := &capture{name: name, file: file}
		o.captures[port] = c
		if c.Pcap, err = record.NewPcap(file, port, f.snap); err != nil {
			return fmt.Errorf("--pcap: %w", err)
		}
		o.files = append(o.files, name)
	}
	s.Output.Capture.Take = func(p *lab.Packet) { o.captures[p.Port].Take(p) }
	return nil
}

func (c *capture) close() error {
	var err error
	if c.Pcap != nil {
		err = c.Pcap.Close()
	}
	if err = errors.Join(err, c.file.Close()); err != nil {
		return fmt.Errorf("--pcap: %s is not complete: %w", c.name, err)
	}
	return nil
}

// closeStreams ends what was written during the run.
func (o *outputs) closeStreams() (err error) {
	for _, end := range o.streams {
		err = errors.Join(err, end())
	}
	o.streams = nil
	return err
}

// write writes what is written after the run, and says what was left out.
func (o *outputs) write(r *lab.Result, errs io.Writer) error {
	for _, name := range o.files {
		if n := o.captures[strings.TrimSuffix(name, ".pcapng")].LeftOut(); n > 0 {
			r.LeftOut = append(r.LeftOut, fmt.Sprintf("%s has the first %d packets of its port, and not the %d after them", name, record.MostPackets, n))
		}
	}
	var err error
	if o.perfetto != nil {
		_ = record.WritePerfetto(o.perfetto, r, o.instants) // the file has its error
		err = o.perfetto.close()
	}
	if o.dir == "" {
		return err
	}
	for _, text := range r.LeftOut {
		fmt.Fprintf(errs, "rocev2: %s\n", text)
	}
	return errors.Join(err, o.writeAll(r))
}

// writeAll writes the files of the directory, up to the first that cannot be
// written.
func (o *outputs) writeAll(r *lab.Result) (err error) {
	put := func(name string, to func(io.Writer) error) {
		if err == nil {
			err = writeFile(filepath.Join(o.dir, name), to)
			o.files = append(o.files, name)
		}
	}
	put("summary.json", func(w io.Writer) error { return writeSummary(w, r) })
	put("result.txt", func(w io.Writer) error { _, err := r.WriteTo(w); return err })
	for _, t := range record.Tables() {
		put(t.Name, func(w io.Writer) error { return t.Write(w, r) })
	}
	for _, p := range r.Plots() {
		put(p.Name+".svg", p.WriteSVG)
	}
	o.files = append(o.files, scenarioFile)
	put(reportFile, func(w io.Writer) error { return htmlreport.WriteRun(w, r, o.text, o.files) })
	return err
}

// writeFile writes a file; the error names it.
func writeFile(name string, to func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	b := bufio.NewWriterSize(file, 1<<16)
	err = to(b)
	if err == nil {
		err = b.Flush()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("--out: %s is not complete, and nothing was written after it: %w", name, err)
	}
	return nil
}

// writeSummary writes what --json prints.
func writeSummary(w io.Writer, r *lab.Result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r.Summary())
}

const (
	reportFile   = "report.html"
	scenarioFile = "scenario.toml"
	summaryFile  = "summary.json"
)

// captureName is what files of --pcap are called.
var captureName = regexp.MustCompile(`^(h\d+|s\d+\.\d+)\.pcapng$`)

// claim makes a directory that of a run. One that has the result of another
// scenario, or of many runs, is refused, and so is one with files of others
// that would be written over: a list of flows may be called flows.csv, too.
// What an earlier run of the same scenario has left is removed, so that nothing
// stands there that is not of this one.
func claim(dir string, text []byte) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if exists(dir, runsFile) {
		return fmt.Errorf("--out: %s has the results of many runs (%s): name another directory", dir, runsFile)
	}
	have, err := os.ReadFile(filepath.Join(dir, scenarioFile))
	switch {
	case err == nil && !bytes.Equal(have, text):
		return fmt.Errorf("--out: %s is of another scenario, seed or setting: name another directory, or remove that one", filepath.Join(dir, scenarioFile))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--out: %w", err)
	}
	if err == nil && exists(dir, summaryFile) {
		if err := removeOutputs(dir); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	names := outputNames()
	if err != nil { // else a run that was killed has left captures
		captures, err := captureNames(dir)
		if err != nil {
			return fmt.Errorf("--out: %w", err)
		}
		names = append(names, captures...)
	}
	for _, name := range names {
		if exists(dir, name) {
			return fmt.Errorf("--out: %s is there already, and not from a run of this scenario: name another directory", filepath.Join(dir, name))
		}
	}
	if err := os.WriteFile(filepath.Join(dir, scenarioFile), text, 0o666); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}

func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// outputNames are the files that a run may write, but for captures.
func outputNames() []string {
	names := []string{summaryFile, "result.txt", reportFile}
	for _, t := range record.Tables() {
		names = append(names, t.Name)
	}
	for _, p := range lab.PlotNames {
		names = append(names, p+".svg")
	}
	return names
}

// captureNames returns the captures in a directory.
func captureNames(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if captureName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// removeOutputs removes the files that a run has written, but for its scenario.
func removeOutputs(dir string) error {
	captures, err := captureNames(dir)
	if err != nil {
		return err
	}
	for _, name := range append(outputNames(), captures...) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
