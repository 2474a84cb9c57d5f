package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/perftest"
)

const rule = "---------------------------------------------------------------------------------------"

// The headers and rows of perftest, blanks and tabs included: programs read
// them by columns. Version 6.06 prints MB/sec and means MiB/sec, which later
// ones print.
const (
	bwHeader      = " #bytes     #iterations    BW peak[%[1]s]    BW average[%[1]s]   MsgRate[Mpps]"
	bwRow         = " %-7d    %-10d       %-7.2f            %-7.2f\t\t   %-7.6f"
	bwRowFine     = " %-7d    %d           %-7.6f            %-7.6f            %-7.6f" // Gb/sec below fineBelow
	fineBelow     = 0.1
	latencyHeader = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
	latencyRow    = " %-7d %d          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f"
	timedHeader   = " #bytes        #iterations       t_avg[usec]    tps average"
	timedRow      = " %-7d       %d            %-7.2f        %-7.2f"
)

// table shows results as perftest does. The first error of writing is kept for
// the end.
type table struct {
	out      io.Writer
	cfg      perftest.Config
	flags    *reportFlags
	device   string
	gidIndex int
	rows     int
	err      error
}

func (t *table) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(t.out, format, args...); err != nil && t.err == nil {
		t.err = err
	}
}

var titles = [...]string{
	perftest.Send: "Send", perftest.Write: "RDMA_Write", perftest.Read: "RDMA_Read", perftest.Atomic: "Atomic",
}

// titleOf is perftest's name of a test.
func titleOf(c perftest.Config) string {
	title := titles[c.Test.Verb]
	if c.Test.Verb == perftest.Atomic {
		title += map[perftest.AtomicOp]string{perftest.FetchAdd: " FETCH_AND_ADD", perftest.CompareSwap: " CMP_AND_SWAP"}[c.Atomic]
	}
	if c.Bidirectional {
		title += " Bidirectional"
	}
	if c.PostList > 1 {
		title += " Post List"
	}
	return title + map[perftest.Kind]string{perftest.Bandwidth: " BW", perftest.Latency: " Latency"}[c.Test.Kind] + " Test"
}

// usingSRQ is perftest's word for whether receives are shared. With XRC they
// always are.
func usingSRQ(c perftest.Config) string {
	if c.SharedReceives || c.Service == interop.XRC {
		return "ON"
	}
	return "OFF"
}

// fact is a line of what a run is about: its name in the table, in the JSON
// file ("" = not there), and its value.
type fact struct {
	name, key string
	value     any
	unit      string
}

// facts lists them in perftest's order.
func facts(c perftest.Config, s perftest.Setup, gidIndex int) []fact {
	var f []fact
	add := func(name, key string, value any, unit string) { f = append(f, fact{name, key, value, unit}) }
	sends := s.Role == interop.Client || c.Bidirectional
	add("PCIe relax order", "PCIe_relax_order", "OFF", "")
	add("ibv_wr* API     ", "ibv_wr_API", "OFF", "")
	if sends {
		add("TX depth        ", "TX_depth", s.TxDepth, "")
	}
	if c.PostList > 1 {
		add("Post List       ", "Post_List", c.PostList, "")
	}
	if c.RecvPostList > 1 {
		add("Recv Post List  ", "Recv_Post_List", c.RecvPostList, "")
	}
	if c.Test.Verb == perftest.Send && (s.Role == interop.Server || c.Bidirectional) {
		add("RX depth        ", "RX_depth", s.RxDepth, "")
	}
	if c.Test.Kind == perftest.Bandwidth {
		add("CQ Moderation   ", "CQ_Moderation", s.CQMod, "")
	}
	add("Mtu             ", "Mtu", s.MTU, "[B]")
	add("Link type       ", "Link_type", "Ethernet", "")
	add("GID index       ", "GID_index", gidIndex, "")
	if c.Test.Verb == perftest.Read || c.Test.Verb == perftest.Atomic {
		add("Outstand reads  ", "Outstand_reads", s.Local[0].OutReads, "")
	} else {
		add("Max inline data ", "Max_inline_data", c.Inline, "[B]")
	}
	qps, exchange := "OFF", "Ethernet"
	if c.CM == perftest.CMAll {
		qps = "ON"
	}
	if c.CM != perftest.NoCM {
		exchange = "rdma_cm"
	}
	add("rdma_cm QPs\t ", "rdma_cm_QPs", qps, "")
	add("Data ex. method ", "Data_ex_method", exchange, "")
	if s.Secured != nil {
		add("Packets sealed  ", "Packets_sealed", s.Secured.Packets.String(), "")
	}
	return f
}

func (t *table) start(s perftest.Setup) {
	t.printf("%s\n                    %s\n", rule, titleOf(t.cfg))
	t.printf(" Dual-port       : OFF\t\tDevice         : %s\n", t.device)
	t.printf(" Number of qps   : %d\t\tTransport type : IB\n", len(s.Local))
	t.printf(" Connection type : %v\t\tUsing SRQ      : %s\n", t.cfg.Service, usingSRQ(t.cfg))
	for _, f := range facts(t.cfg, s, t.gidIndex) {
		t.printf(" %s: %v%s\n", f.name, f.value, f.unit)
	}
	t.printf("%s\n", rule)
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
		t.printf(" %s address: LID %s QPN %s PSN %s", side, cHex(uint64(a.LID), 4), cHex(uint64(a.QPN), 6), cHex(uint64(a.PSN), 6))
		if test.Verb == perftest.Read {
			t.printf(" OUT %s", cHex(uint64(a.OutReads), 4))
		}
		if test.Verb == perftest.Read || test.Verb == perftest.Write {
			t.printf(" RKey %s VAddr %s", cHex(uint64(a.RKey), 8), cHex(a.VAddr, 16))
		}
		gid := make([]string, len(a.GID))
		for i, b := range a.GID {
			gid[i] = fmt.Sprintf("%02d", b)
		}
		t.printf("\n GID: %s\n", strings.Join(gid, ":"))
	}
}

// cHex is a number as C prints it with %#0<width>x: the prefix counts, and
// nothing but zero is without one.
func cHex(v uint64, width int) string {
	if v == 0 {
		return strings.Repeat("0", width)
	}
	return fmt.Sprintf("0x%0*x", width-2, v)
}

func (t *table) header() {
	switch {
	case t.cfg.Test.Kind == perftest.Bandwidth && t.flags.gbits:
		t.printf(bwHeader+"\n", "Gb/sec")
	case t.cfg.Test.Kind == perftest.Bandwidth:
		t.printf(bwHeader+"\n", "MiB/sec")
	case t.cfg.Duration > 0:
		t.printf("%s\n", timedHeader)
	default:
		t.printf("%s\n", latencyHeader)
	}
}

func (t *table) result(r perftest.Result) {
	if t.rows++; t.rows == 1 {
		t.header()
	}
	l := r.Latency
	switch {
	case l == nil:
		average, row := r.Average/t.flags.unit(), bwRow
		if t.flags.gbits && average < fineBelow {
			row = bwRowFine
		}
		t.printf(row+"\n", r.Size, r.Iterations, t.flags.peak(t.cfg, r)/t.flags.unit(), average, r.MsgRate/1e6)
	case t.cfg.Duration > 0:
		t.printf(timedRow+"\n", r.Size, r.Iterations, usec(l.Average), r.MsgRate)
	default:
		t.printf(latencyRow+"\n", r.Size, r.Iterations, usec(l.Min), usec(l.Max), usec(l.Typical), usec(l.Average), usec(l.StdDev), usec(l.P99), usec(l.P999))
	}
	if r.Lost > 0 {
		t.printf(" lost: %d of %d messages did not arrive\n", r.Lost, r.Lost+r.Iterations)
	}
}

func (t *table) end() error {
	t.printf("%s\n", rule)
	return t.err
}

func usec(d time.Duration) float64 { return float64(d) / 1e3 }
