package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/replay"
	"github.com/gosoftroce/rocev2/observe/dissect"
)

// dumper shows the packets of a capture.
type dumper struct {
	*dumpFlags
	filter  *dissect.Filter
	out     *bufio.Writer
	err     io.Writer
	live    bool // a user may watch: lines must not wait
	stats   dissect.Stats
	chart   *dissect.Chart
	capture *dissect.Capture
	shown   uint64
	line    []byte

	replay  *replay.Replay
	file    *os.File
	ng      *dissect.Writer
	wrote   uint64 // number of the last frame that was written
	closers []func() error
}

func (d *dumper) close() {
	for _, c := range slices.Backward(d.closers) {
		if err := c(); err != nil {
			fmt.Fprintf(d.err, "rocev2: %v\n", err)
		}
	}
	d.closers = nil
}

// read shows packets until the capture ends, or enough were shown.
func (d *dumper) read(ctx context.Context, c *dissect.Capture) error {
	d.capture = c
	for ctx.Err() == nil && (d.count == 0 || d.shown < d.count) {
		p, err := c.Next()
		switch {
		case errors.Is(err, io.EOF) || err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !d.filter.Match(p):
			continue
		}
		d.shown++
		if err := d.show(p); err != nil {
			return err
		}
	}
	return nil
}

// show shows a packet as the flags ask for it.
func (d *dumper) show(p *dissect.Packet) (err error) {
	d.stats.Add(p)
	if d.dumpFlags.chart != "" {
		d.chart.Add(p)
	}
	if d.replay != nil {
		d.replay.Add(p)
	}
	if d.ng != nil {
		return d.writeFrame(p)
	}
	if d.quiet() {
		return nil
	}
	switch {
	case d.json:
		d.line = append(dissect.JSON(d.line[:0], p), '\n')
		_, err = d.out.Write(d.line)
	case d.verbose || d.hex:
		err = dissect.Detail(d.out, p, d.hex)
	default:
		_, err = fmt.Fprintln(d.out, dissect.Line(p))
	}
	if err == nil && d.live {
		err = d.out.Flush()
	}
	return err
}

// end shows what is known only at the end.
func (d *dumper) end() error {
	var errs []error
	add := func(err error) { errs = append(errs, err) }
	flows := d.capture.Flows()
	if d.connections {
		if d.json {
			add(dissect.WriteConnectionsJSON(d.out, &d.stats, flows))
		} else {
			add(dissect.WriteConnections(d.out, &d.stats, flows))
		}
	}
	if d.dumpFlags.stats != "" {
		switch {
		case d.json || d.dumpFlags.stats == statsJSON:
			add(dissect.WriteStatsJSON(d.out, &d.stats, flows))
		default:
			if d.connections {
				fmt.Fprintln(d.out)
			}
			add(dissect.WriteStats(d.out, &d.stats, flows))
		}
	}
	if d.dumpFlags.chart != "" {
		add(d.draw())
	}
	if d.ng != nil {
		add(d.ng.Flush())
		add(d.file.Close())
		fmt.Fprintf(d.err, "%d packets written to %s\n", d.shown, d.write)
	}
	if d.replay != nil && d.stats.Packets > 0 {
		add(d.writeScenario())
	}
	add(d.out.Flush())
	if frames, other := d.capture.Frames(); d.stats.Packets == 0 && frames > 0 {
		what := "no packet fits the filter"
		if other == frames {
			what = "none of them is RoCEv2 (UDP to port 4791 over IP)"
		}
		fmt.Fprintf(d.err, "%d frames: %s\n", frames, what)
	}
	d.reportKeys()
	return errors.Join(errs...)
}

// writeScenario writes what the packets that were shown are as a scenario.
func (d *dumper) writeScenario() error {
	name := "capture"
	if d.dumpFlags.scenario != "-" {
		name = strings.TrimSuffix(filepath.Base(d.dumpFlags.scenario), ".toml")
	}
	text, err := d.replay.Scenario(name)
	switch {
	case err != nil:
	case d.dumpFlags.scenario == "-":
		_, err = d.out.Write(text)
	default:
		err = os.WriteFile(d.dumpFlags.scenario, text, 0o666)
	}
	if err != nil {
		return fmt.Errorf("--scenario: %w", err)
	}
	return nil
}

// draw draws the chart, and says which connections are not in it.
func (d *dumper) draw() error {
	if d.chart.Connection() == nil {
		if d.connection > 0 {
			return fmt.Errorf("--chart: there is no connection %d in what fits; --connections lists them", d.connection)
		}
		return errors.New("--chart: no connection fits")
	}
	if others := d.chart.Others(); d.connection == 0 && len(others) > 0 {
		fmt.Fprintf(d.err, "the chart is of connection %d; others are %v: choose with --connection\n", d.chart.Connection().ID, others)
	}
	if more := d.chart.More(); more > 0 {
		fmt.Fprintf(d.err, "%d packets are not in the chart: choose with -f, or draw more with --arrows\n", more)
	}
	if d.dumpFlags.chart == "-" {
		return d.chart.WriteText(d.out, d.columns)
	}
	file, err := os.Create(d.dumpFlags.chart)
	if err != nil {
		return fmt.Errorf("--chart: %w", err)
	}
	if err := errors.Join(d.chart.WriteSVG(file), file.Close()); err != nil {
		return fmt.Errorf("--chart %s: %w", d.dumpFlags.chart, err)
	}
	return nil
}

// create begins the file of --write.
func (d *dumper) create(name string) (err error) {
	if d.file, err = os.Create(name); err != nil {
		return fmt.Errorf("--write: %w", err)
	}
	d.ng = dissect.NewWriter(d.file)
	return nil
}

// writeFrame writes the frame that a packet came in, once, or the packet that
// was opened.
func (d *dumper) writeFrame(p *dissect.Packet) error {
	if d.plain && p.Sealed.Opened {
		d.line = p.AppendPlain(d.line[:0])
		return d.ng.Write(&dissect.Frame{Time: p.Time, Link: dissect.LinkRaw, Data: d.line})
	}
	if p.Number == d.wrote {
		return nil
	}
	d.wrote = p.Number
	return d.ng.Write(d.capture.Frame())
}
