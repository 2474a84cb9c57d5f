package report

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// What the README of the product shows of the reports stands between these
// lines.
const (
	blockBegin = "<!-- figures: written by make bench from bench/report -->\n"
	blockEnd   = "<!-- figures: end -->\n"
)

// highlights are the lines of the README's table.
var highlights = []Target{
	{What: "WRITEs of 1 MiB, 16 outstanding", Against: "raw UDP sockets with the CRC of this stack: what the protocol costs", Cell: "ours/write/1MiB", Peer: "raw/4140/icrc"},
	{Against: "one TCP stream (iperf3)", Cell: "ours/write/1MiB", Peer: "iperf3/tcp"},
	{Against: "UCX over TCP, active messages of 1 MiB", Cell: "ours/write/1MiB", Peer: "ucx/am_bw/1MiB"},
	{What: "SENDs of 1 MiB, 16 outstanding", Against: "raw UDP sockets with the CRC of this stack", Cell: "ours/send/1MiB", Peer: "raw/4140/icrc"},
	{Against: "one TCP stream (iperf3)", Cell: "ours/send/1MiB", Peer: "iperf3/tcp"},
	{Against: "UCX over TCP, active messages of 1 MiB", Cell: "ours/send/1MiB", Peer: "ucx/am_bw/1MiB"},
	{What: "READs of 1 MiB, 16 outstanding", Against: "raw UDP sockets with the CRC of this stack", Cell: "ours/read/1MiB", Peer: "raw/4140/icrc"},
	{Against: "one TCP stream (iperf3)", Cell: "ours/read/1MiB", Peer: "iperf3/tcp"},
	{What: "WRITEs of 1 MiB in both directions", Against: "iperf3 --bidir", Cell: "ours/write/1MiB/both", Peer: "iperf3/bidir"},
	{What: "WRITEs of 8 bytes", Against: "million messages a second", Cell: "ours/write/8B/qps=1"},
	{Against: "UCX over TCP, its put", Cell: "ours/write/8B/qps=1", Peer: "ucx/put_rate/8B"},
	{What: "latency of WRITE, polling", Against: "raw UDP sockets, spinning", Cell: "ours/write/lat", Peer: "raw/rtt/spin"},
	{Against: "UCX over TCP, its put", Cell: "ours/write/lat", Peer: "ucx/put_lat/8B"},
	{What: "latency of SEND, asleep on a completion channel", Against: "raw UDP sockets, blocking", Cell: "ours/send/lat/event", Peer: "raw/rtt/block"},
	{What: "WRITEs of 1 MiB at 0.1 % loss", Against: "WRITEs without loss", Cell: "ours/write/1MiB/loss=0.1%", Peer: "ours/write/1MiB/loss=0%"},
	{What: "WRITEs to kernel rxe in an emulated guest", Against: "rxe to itself in that guest", Cell: "kernel/write/ours-to-rxe", Peer: "kernel/write/rxe-to-rxe"},
}

// Readme is the part of the product's README: each figure as its range over the
// machines that have measured it. dir is where the reports are, as a link.
func Readme(folders []Folder, dir string) string {
	var b strings.Builder
	var rows []Rows
	heads, rule, plots := "|", "|", "|"
	for _, f := range folders {
		rows = append(rows, f.byName())
		title := f.Env.Title()
		heads += fmt.Sprintf(" [%s, %d processors](%s/%s/%s) |", title, f.Env.CPUs, dir, f.Name, ReportFile)
		rule += " --- |"
		plots += fmt.Sprintf(" ![Throughput of 1 MiB messages beside other stacks, %s](%s/%s/throughput.svg) |", title, dir, f.Name)
	}
	fmt.Fprintf(&b, "%s\n%s\n%s\n\n| what | compared with | ratio |\n| --- | --- | --- |\n", heads, rule, plots)
	what := ""
	for _, t := range highlights {
		if t.What != "" {
			what = t.What
		}
		line, ok := t.over(rows)
		if ok {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", what, t.Against, line)
			what = "" // once
		}
	}
	return b.String()
}

// over formats the range of a figure over the machines that have it.
func (t Target) over(machines []Rows) (string, bool) {
	low, high := math.Inf(1), math.Inf(-1)
	n := 0
	for _, rows := range machines {
		if v := t.Judge(rows); v.Why == "" {
			n++
			low, high = min(low, v.Measured), max(high, v.Measured)
		}
	}
	if n == 0 {
		return "", false
	}
	s := short(low)
	if short(high) != s {
		s += " … " + short(high)
	}
	s += t.times()
	if n < len(machines) {
		s += fmt.Sprintf(" (measured on %d of %d)", n, len(machines))
	}
	return s, true
}

// short formats with two significant digits.
func short(v float64) string {
	if v >= 10 {
		return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// UpdateReadme replaces the part of a file.
func UpdateReadme(file, part string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, after, err := around(b)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	out := string(before) + part + string(after)
	if out == string(b) {
		return nil
	}
	return os.WriteFile(file, []byte(out), 0o644)
}

// around returns what is before and after the part, with its marks.
func around(b []byte) (before, after []byte, err error) {
	from, to := bytes.Index(b, []byte(blockBegin)), bytes.Index(b, []byte(blockEnd))
	if from < 0 || to < from {
		return nil, nil, errors.New("the lines that mark the figures are missing")
	}
	return b[:from+len(blockBegin)], b[to:], nil
}
