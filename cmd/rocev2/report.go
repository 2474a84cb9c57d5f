package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/gosoftroce/rocev2/interop/perftest"
)

// printer shows the results of a test.
type printer interface {
	start(perftest.Setup)
	result(perftest.Result)
	note(string)
	end() error
}

const rule = "---------------------------------------------------------------------------------------"

// table shows results in the manner of perftest. The first error of writing is
// kept for the end.
type table struct {
	out    io.Writer
	cfg    perftest.Config
	device string
	rows   int
	err    error
}

func (t *table) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(t.out, format, args...); err != nil && t.err == nil {
		t.err = err
	}
}

var titles = [...]string{
	perftest.Send: "Send", perftest.Write: "RDMA_Write", perftest.Read: "RDMA_Read", perftest.Atomic: "Atomic",
}

func (t *table) start(s perftest.Setup) {
	title := titles[s.Test.Verb]
	if s.Test.Verb == perftest.Atomic {
		title += map[perftest.AtomicOp]string{perftest.FetchAdd: " FETCH_AND_ADD", perftest.CompareSwap: " CMP_AND_SWAP"}[t.cfg.Atomic]
	}
	if t.cfg.Bidirectional {
		title += " Bidirectional"
	}
	title += map[perftest.Kind]string{perftest.Bandwidth: " BW", perftest.Latency: " Latency"}[s.Test.Kind]
	t.printf("%s\n                    %s Test\n", rule, title)
	t.printf(" Device          : %-20s Role            : %v\n", t.device, s.Role)
	t.printf(" Number of qps   : %-20d Connection type : RC\n", len(s.Local))
	t.printf(" TX depth        : %-20d Mtu             : %d[B]\n", s.TxDepth, s.MTU)
	if s.Test.Verb == perftest.Send {
		t.printf(" RX depth        : %-20d", s.RxDepth)
	} else {
		t.printf(" Outstand reads  : %-20d", s.Remote[0].OutReads)
	}
	t.printf(" CQ Moderation   : %d\n", s.CQMod)
	t.printf(" Peer's version  : %-20s Data ex. method : Ethernet\n%s\n", s.RemoteVersion, rule)
	t.addresses("local", s.Test, s.Local)
	t.addresses("remote", s.Test, s.Remote)
	t.printf("%s\n", rule)
}

// mostAddresses is how many queue pairs are listed.
const mostAddresses = 8

func (t *table) addresses(side string, test perftest.Test, list []perftest.Address) {
	for i, a := range list {
		if i == mostAddresses {
			t.printf(" ... and %d more\n", len(list)-i)
			return
		}
		t.printf(" %s address: LID 0x%04x QPN 0x%06x PSN 0x%06x", side, a.LID, uint32(a.QPN), uint32(a.PSN))
		if test.Verb == perftest.Read || test.Verb == perftest.Atomic {
			t.printf(" OUT 0x%02x", a.OutReads)
		}
		if test.Verb != perftest.Send {
			t.printf(" RKey 0x%08x VAddr 0x%016x", uint32(a.RKey), a.VAddr)
		}
		t.printf("\n GID: %v\n", a.GID.Addr())
	}
}

func (t *table) result(r perftest.Result) {
	t.rows++
	if r.Test.Kind == perftest.Latency {
		t.latency(r)
		return
	}
	if t.rows == 1 {
		t.printf(" #bytes     #iterations    BW peak[MiB/s]     BW average[MiB/s]   BW average[Gb/s]   MsgRate[Mpps]\n")
	}
	t.printf(" %-10d %-14d %-18.2f %-19.2f %-18.3f %.6f\n",
		r.Size, r.Iterations, r.Peak/(1<<20), r.MiBps(), r.Gbps(), r.MsgRate/1e6)
}

func (t *table) latency(r perftest.Result) {
	if t.rows == 1 {
		t.printf(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99%% percentile[usec]   99.9%% percentile[usec]\n")
	}
	l := r.Latency
	t.printf(" %-7d %-13d %-14.2f %-12.2f %-18.2f %-14.2f %-15.2f %-22.2f %.2f\n",
		r.Size, r.Iterations, usec(l.Min), usec(l.Max), usec(l.Typical), usec(l.Average), usec(l.StdDev), usec(l.P99), usec(l.P999))
}

func (t *table) note(s string) {
	if t.rows == 0 {
		t.printf(" %s\n", s)
	}
}

func (t *table) end() error {
	t.printf("%s\n", rule)
	return t.err
}

func usec(d time.Duration) float64 { return float64(d) / 1e3 }

// jsonLines prints a JSON object a line.
type jsonLines struct {
	out io.Writer
	err error
}

// jsonResult is the form of a line.
type jsonResult struct {
	Op            string  `json:"op"`
	Role          string  `json:"role"`
	Size          int     `json:"size"`
	QPs           int     `json:"qps"`
	MTU           int     `json:"mtu"`
	Bidirectional bool    `json:"bidirectional"`
	Iterations    uint64  `json:"iterations"`
	Seconds       float64 `json:"seconds"`
	Gbps          float64 `json:"gbps"`
	Mpps          float64 `json:"mpps"`
	*jsonLatency
}

type jsonLatency struct {
	Min float64 `json:"lat_us_min"`
	P50 float64 `json:"lat_us_p50"`
	Avg float64 `json:"lat_us_avg"`
	P99 float64 `json:"lat_us_p99"`
	Max float64 `json:"lat_us_max"`
}

func (j *jsonLines) start(perftest.Setup) {}
func (j *jsonLines) note(string)          {}
func (j *jsonLines) end() error           { return j.err }

func (j *jsonLines) result(r perftest.Result) {
	line := jsonResult{
		Op: r.Test.String(), Role: r.Role.String(), Size: r.Size, QPs: r.QPs, MTU: r.MTU, Bidirectional: r.Bidirectional,
		Iterations: r.Iterations, Seconds: r.Elapsed.Seconds(), Gbps: r.Gbps(), Mpps: r.MsgRate / 1e6,
	}
	if l := r.Latency; l != nil {
		line.jsonLatency = &jsonLatency{
			Min: usec(l.Min), P50: usec(l.Typical), Avg: usec(l.Average), P99: usec(l.P99), Max: usec(l.Max),
		}
	}
	if err := json.NewEncoder(j.out).Encode(line); err != nil && j.err == nil {
		j.err = err
	}
}
