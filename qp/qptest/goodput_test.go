package qptest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/scripts"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

const (
	goodputFile  = "testdata/goodput.txt"
	goodputSize  = 64 << 10 // bytes of a message
	goodputDepth = 16       // messages outstanding
	goodputTotal = 20000    // packets of payload per cell without loss
	goodputLimit = clock.Time(20e9)
)

// goodputLoss are the loss probabilities per packet, in both directions.
var goodputLoss = []float64{0, 0.0001, 0.001, 0.01, 0.02, 0.05, 0.10}

// flood is an application that keeps a number of requests of one kind
// outstanding and counts what completes.
type flood struct {
	sim
	op       ib.Opcode
	size     int
	limit    clock.Time
	posted   int
	done     int
	messages int
	endpoint [2]*simQP
	region   [2]*memreg.Region
	err      error
}

// floodParams are the link and the two ends of a flood.
type floodParams struct {
	loss   float64
	buffer int // bytes at the receiver; 0: it takes everything
	mark   int // bytes that wait there from which on packets are marked; 0: none are
	probe  time.Duration
	own    bool // both sides know that the other one is native

	delay clock.Time // in either direction; 0: 10 µs
	line  int64      // bits per second of the link; 0: goodputLine
	takes int64      // bits per second that leave the buffer; 0: goodputTakes
	size  int        // bytes of a message; 0: goodputSize
	chunk int        // bytes of a READ request; 0: any number
	reads int        // READ requests outstanding; 0: goodputDepth
	total int        // packets of payload; 0: goodputTotal
	ways  int        // that packets take by chance, see linkParams
	limit clock.Time // 0: goodputLimit

	window qp.WindowConfig // if not zero
}

// The window between two native peers, and at what rate a receiver with a
// buffer takes packets from it.
var ownWindow = qp.WindowConfig{MaxBytes: 2 << 20, MaxPSNs: 4096}

const (
	goodputLine  = 10e9
	goodputTakes = 8e9
)

func newFlood(op ib.Opcode, mtu rocev2.MTU, p floodParams) (*flood, error) {
	p.delay, p.takes, p.limit = cmp.Or(p.delay, 10000), cmp.Or(p.takes, goodputTakes), cmp.Or(p.limit, goodputLimit)
	p.size, p.total, p.line = cmp.Or(p.size, goodputSize), cmp.Or(p.total, goodputTotal), cmp.Or(p.line, goodputLine)
	p.reads = cmp.Or(p.reads, goodputDepth)
	f := &flood{op: op, size: p.size, messages: p.total * mtu.Bytes() / p.size, limit: p.limit}
	f.skipCRC = true
	f.hooks = simHooks{touched: f.touched, unexpected: func(format string, args ...any) { f.err = fmt.Errorf(format, args...) }}
	for i, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		rng := rand.New(rand.NewPCG(uint64(i)+1, 0x900d))
		f.nodes[i] = &simNode{node: newNode(netip.MustParseAddr(addr), rng.Uint32), rng: rng,
			link:  linkParams{loss: p.loss, delay: p.delay, bitsPerSecond: p.line, queue: 10000, buffer: p.buffer, takes: p.takes, markFrom: p.mark, ways: p.ways},
			spray: rand.New(rand.NewPCG(uint64(i)+1, 0x5a4a))}
		region, err := f.nodes[i].register(f.nodes[i].pd, alignedBytes(p.size), 0x10000, accessAll)
		if err != nil {
			return nil, err
		}
		f.region[i] = region
		e, err := newEndpoint(f.nodes[i].node, qp.Config{QPN: rocev2.QPN(0x11 + i), MaxSendWR: goodputDepth, MaxRecvWR: 4 * goodputDepth, MinProbe: p.probe, ReadChunk: p.chunk})
		if err != nil {
			return nil, err
		}
		if p.own {
			e.SetWindow(ownWindow)
			e.SetReorder(qp.NewPool(2048))
		}
		if p.window != (qp.WindowConfig{}) {
			e.SetWindow(p.window)
		}
		f.endpoint[i] = &simQP{endpoint: e, on: f.nodes[i], qpn: e.QPN()}
		f.nodes[i].qps = []*simQP{f.endpoint[i]}
	}
	f.nodes[0].peer, f.nodes[1].peer = f.nodes[1], f.nodes[0]
	for i, q := range f.endpoint {
		err := q.connect(ib.Attr{
			State: ib.StateRTS, Access: accessAll, Port: 1, AV: ib.AddressVector{DGID: f.nodes[1-i].addr}, PathMTU: mtu,
			Timeout: 14, RetryCount: 7, RNRRetry: 7, MinRNRTimer: 12, MaxRdAtomic: uint8(p.reads), MaxDestRdAtomic: uint8(p.reads),
			DestQPN: f.endpoint[1-i].qpn,
		})
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// touched counts completions and posts what replaces them.
func (f *flood) touched(q *simQP) {
	for _, wc := range append(q.sendCQ.drain(), q.recvCQ.drain()...) {
		if wc.Status != ib.StatusSuccess {
			f.err = fmt.Errorf("completion with %v", wc.Status)
		}
		if q == f.endpoint[0] {
			f.done++
		} else if err := f.recv(); err != nil {
			f.err = err
		}
	}
	for q == f.endpoint[0] && f.posted < f.messages && f.posted-f.done < goodputDepth && f.err == nil {
		f.posted++
		f.err = q.PostSend(&ib.SendWR{ID: uint64(f.posted), Opcode: f.op, Signaled: true,
			SGList: []ib.SGE{{Addr: f.region[0].Addr(), Length: uint32(f.size), LKey: f.region[0].LKey()}},
			Remote: ib.RemoteAddr{Addr: f.region[1].Addr(), RKey: f.region[1].RKey()}})
	}
}

func (f *flood) recv() error {
	return f.endpoint[1].PostRecv(&ib.RecvWR{SGList: []ib.SGE{{Addr: f.region[1].Addr(), Length: uint32(f.size), LKey: f.region[1].LKey()}}})
}

// run returns the goodput in bits per second of virtual time.
func (f *flood) run() (float64, error) {
	for range 4 * goodputDepth {
		if err := f.recv(); err != nil {
			return 0, err
		}
	}
	f.touch(f.endpoint[0])
	for f.done < f.messages && f.err == nil && f.now < f.limit && f.step(nil) {
	}
	if f.err == nil && f.done < f.messages && f.now < f.limit {
		f.err = fmt.Errorf("stands still after %d of %d messages", f.done, f.messages)
	}
	return float64(f.done) * float64(f.size) * 8 / (float64(f.now) / 1e9), f.err
}

func goodput(t *testing.T, op ib.Opcode, mtu rocev2.MTU, p floodParams) float64 {
	rate, _ := goodputAndLosses(t, op, mtu, p)
	return rate
}

func goodputAndLosses(t *testing.T, op ib.Opcode, mtu rocev2.MTU, p floodParams) (float64, int) {
	f, err := newFlood(op, mtu, p)
	if err != nil {
		t.Fatal(err)
	}
	rate, err := f.run()
	if err != nil {
		t.Errorf("%v, mtu %d, %+v: %v", op, mtu.Bytes(), p, err)
	}
	return rate, f.nodes[0].losses + f.nodes[1].losses
}

// goodputTable writes a row for each operation and MTU and a column for each of
// the parameters.
func goodputTable(t *testing.T, b *strings.Builder, columns []string, params []floodParams) {
	b.WriteString("| operation, MTU |")
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(columns)) + "\n")
	for _, mtu := range []rocev2.MTU{rocev2.MTU1024, rocev2.MTU4096} {
		for _, op := range []ib.Opcode{ib.OpSend, ib.OpWrite, ib.OpRead} {
			fmt.Fprintf(b, "| %v, %d |", op, mtu.Bytes())
			for _, p := range params {
				fmt.Fprintf(b, " %.0f |", goodput(t, op, mtu, p)/1e6)
			}
			b.WriteString("\n")
		}
	}
}

// bufferTables writes the tables for receive buffers of some KiB. With a share
// packets are marked from that part of the buffer on.
func bufferTables(t *testing.T, b *strings.Builder, sizes []int, share int) {
	for _, own := range []bool{false, true} {
		title := "To a peer of unknown kind"
		if own {
			title = "Two of our own kind"
		}
		fmt.Fprintf(b, "\n%s:\n\n", title)
		var columns []string
		var params []floodParams
		for _, kib := range sizes {
			p := floodParams{buffer: kib << 10, probe: time.Millisecond, own: own}
			if share > 0 {
				p.mark = p.buffer / share
			}
			columns = append(columns, fmt.Sprintf("%d KiB", kib))
			params = append(params, p)
		}
		goodputTable(t, b, columns, params)
	}
}

// TestGoodput compares the goodput against loss with the committed table, so
// that a change of the recovery shows up as a difference in numbers. It is a
// function of the code alone: virtual time, fixed seeds.
func TestGoodput(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("statistics of seconds of virtual time: run without -short")
	}
	var b strings.Builder
	b.WriteString(goodputHeader)
	for _, k := range []struct {
		title string
		probe time.Duration
		own   bool
	}{{"To a peer of unknown kind", time.Millisecond, false}, {"Two of our own kind", time.Millisecond, true}} {
		fmt.Fprintf(&b, "\n%s:\n\n", k.title)
		var columns []string
		var params []floodParams
		for _, l := range goodputLoss {
			columns = append(columns, fmt.Sprintf("%g %%", l*100))
			params = append(params, floodParams{loss: l, probe: k.probe, own: k.own})
		}
		goodputTable(t, &b, columns, params)
	}
	b.WriteString(goodputBuffers)
	bufferTables(t, &b, []int{16, 64, 256, 1024, 4096}, 0)
	b.WriteString(goodputMarks)
	bufferTables(t, &b, []int{16, 64, 256}, 4)
	compareTables(t, goodputFile, b.String())
}

// compareTables compares tables with the committed ones, or writes them.
func compareTables(t *testing.T, file, text string) {
	t.Helper()
	if *scripts.Rewrite {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("the goodput has changed:\n%s\nwas:\n%s\nAfter a change that is understood: go test ./qp/qptest -run '^%s$' -rewrite", text, want, t.Name())
	}
}

const goodputHeader = `# Goodput against loss, in Mb/s

One connection over a link of 10 Gb/s and 10 µs in each direction, in virtual time. Messages of 64 KiB, 16 outstanding;
local ACK timeout 14 (67 ms), retry count 7, MinProbe 1 ms; every packet, responses too, is lost with the probability of the
column. To a peer of unknown kind nothing goes again before the timeout, unless a NAK or an answer shows a loss.
TestGoodput compares; -rewrite writes.
`

const goodputBuffers = `
# Goodput against the receiver's buffer, in Mb/s

The same link without loss, but the receiver takes 8 Gb/s, and drops what does not fit into its buffer.
`

const goodputMarks = `
# The same with marks, in Mb/s

Packets that find a quarter of the buffer taken are marked with Congestion Experienced.
`
