package qptest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

const pathFile = "testdata/path.txt"

// TestPath compares the goodput over long paths with the committed table.
func TestPath(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("statistics of seconds of virtual time: run without -short")
	}
	var b strings.Builder
	b.WriteString(pathHeader)
	for _, own := range []bool{true, false} {
		title := "Two of our own kind"
		if !own {
			title = "To a peer of unknown kind"
		}
		for _, rate := range []int64{1e8, 1e9, 10e9} {
			fmt.Fprintf(&b, "\n%s, %g Gb/s:\n\n", title, float64(rate)/1e9)
			pathTable(t, &b, own, rate)
		}
	}
	compareTables(t, pathFile, b.String())
}

// pathTable writes the table of one rate.
func pathTable(t *testing.T, b *strings.Builder, own bool, rate int64) {
	losses := []float64{0, 0.001, 0.01, 0.05}
	b.WriteString("| operation, round trip |")
	for _, l := range losses {
		fmt.Fprintf(b, " %g %% |", l*100)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(losses)) + "\n")
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		for _, rtt := range []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
			fmt.Fprintf(b, "| %v, %v |", op, rtt)
			for _, l := range losses {
				p := floodParams{
					loss: l, probe: time.Millisecond, own: own, delay: clock.Time(rtt / 2), line: 40e9, takes: rate,
					buffer: max(1<<20, int(float64(rate)/8*rtt.Seconds())),
					size:   1 << 20, chunk: 256 << 10, total: pathPackets, limit: 600e9, window: deviceWindow(own),
				}
				fmt.Fprintf(b, " %.0f |", goodput(t, op, rocev2.MTU4096, p)/1e6)
			}
			b.WriteString("\n")
		}
	}
}

// deviceWindow is the window that a device gives a queue pair.
func deviceWindow(own bool) qp.WindowConfig {
	if own {
		return qp.WindowConfig{MaxBytes: 9 << 18, MaxPSNs: 4096}
	}
	return qp.WindowConfig{MaxBytes: 128 * (4096 + qp.PacketOverhead), MaxPSNs: 128}
}

// pathPackets are 40 messages.
const pathPackets = 40 << 8

const pathHeader = `# Goodput over long paths, in Mb/s

One connection through a bottleneck with a buffer of 1 MiB, or the bandwidth-delay product if that is more, in virtual
time, with the window of devices. Path MTU 4096, messages of 1 MiB, 16 outstanding, 40 in all, READs in requests of 256 KiB;
every packet, responses too, is lost with the probability of the column. TestPath compares; -rewrite writes.
`

// second begins a second connection of the same kind at a time, and returns
// how many messages each of the two has completed from twice that on, up to
// end.
func (f *flood) second(begin, end clock.Time) (done [2]int, err error) {
	senders := [2]*simQP{f.endpoint[0]}
	var pair [2]*simQP
	for i, n := range f.nodes {
		e, err := newEndpoint(n.node, qp.Config{QPN: rocev2.QPN(0x21 + i), MaxSendWR: goodputDepth, MaxRecvWR: 1, MinProbe: time.Millisecond})
		if err != nil {
			return done, err
		}
		e.SetWindow(ownWindow)
		e.SetReorder(qp.NewPool(2048))
		pair[i] = &simQP{endpoint: e, on: n, qpn: e.QPN()}
		n.qps = append(n.qps, pair[i])
	}
	for i, q := range pair {
		a := f.endpoint[i].Attr()
		a.State, a.SQPSN, a.RQPSN, a.DestQPN = ib.StateRTS, 0, 0, pair[1-i].qpn
		if err := q.connect(a); err != nil {
			return done, err
		}
	}
	senders[1] = pair[0]
	f.hooks.touched = func(q *simQP) {
		wcs := append(q.sendCQ.drain(), q.recvCQ.drain()...)
		for i, s := range senders {
			if q != s || i == 1 && f.now < begin {
				continue
			}
			if f.now >= 2*begin {
				done[i] += len(wcs)
			}
			for q.PostSend(&ib.SendWR{Opcode: f.op, Signaled: true,
				SGList: []ib.SGE{{Addr: f.region[0].Addr(), Length: uint32(f.size), LKey: f.region[0].LKey()}},
				Remote: ib.RemoteAddr{Addr: f.region[1].Addr(), RKey: f.region[1].RKey()}}) == nil {
			}
		}
	}
	f.touch(senders[0])
	for begun := false; f.now < end && f.step(nil); {
		if !begun && f.now >= begin {
			begun = true
			f.touch(senders[1])
		}
	}
	return done, f.err
}

// TestPathIsShared: of two connections through one bottleneck, whose queue
// drops what does not fit, none starves, whether the path loses packets too or
// not, and the link is used. The second begins when the first has the path for
// itself, and takes its queue for a part of the path.
func TestPathIsShared(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("statistics of seconds of virtual time: run without -short")
	}
	begin := clock.Time(5e8)
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		for _, path := range []struct {
			delay  clock.Time // one way
			buffer int
		}{{50e3, 1 << 18}, {50e3, 1 << 20}, {500e3, 1 << 18}, {500e3, 1 << 20}, {5e6, 10e6 / 8}} {
			var sum [2]int
			for _, loss := range []float64{0, 0.001, 0.01} {
				begin += 1333333
				done := share(t, op, begin, floodParams{
					loss: loss, probe: time.Millisecond, own: true, delay: path.delay, takes: 1e9, buffer: path.buffer, size: 1 << 18, total: 1 << 20,
				})
				sum[0], sum[1] = sum[0]+done[0], sum[1]+done[1]
			}
			if min(sum[0], sum[1])*4 < max(sum[0], sum[1]) {
				t.Errorf("%v over round trips of %v, a buffer of %d KiB: %d messages", op, time.Duration(2*path.delay), path.buffer>>10, sum)
			}
		}
	}
}

// share has a path shared from begin on. How much each flow gets in some
// seconds is partly chance: it depends on which one meets a full queue.
func share(t *testing.T, op ib.Opcode, begin clock.Time, p floodParams) [2]int {
	t.Helper()
	const end = 5e9
	f, err := newFlood(op, rocev2.MTU4096, p)
	if err != nil {
		t.Fatal(err)
	}
	done, err := f.second(begin, end)
	if err != nil {
		t.Fatal(err)
	}
	ratio := float64(done[0]) / float64(done[1])
	total := float64(done[0]+done[1]) * float64(f.size) * 8 / float64(end-2*begin)
	what := fmt.Sprintf("%v, loss %g %%, round trip %v, buffer of %d KiB: first to second %.2f, %.3f Gb/s, %d packets lost",
		op, p.loss*100, time.Duration(2*p.delay), p.buffer>>10, ratio, total, f.nodes[0].losses+f.nodes[1].losses)
	t.Log(what)
	if ratio < 1./8 || ratio > 8 || total < 0.9 {
		t.Error(what)
	}
	return done
}

// TestLostFlight: when a path has lost everything for a while, as when it
// changes, the connection is as fast as before after some round trips, not one
// for each packet that was lost.
func TestLostFlight(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("statistics of seconds of virtual time: run without -short")
	}
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead} {
		for _, gone := range []time.Duration{time.Millisecond, 3 * time.Millisecond, 8 * time.Millisecond, 30 * time.Millisecond} {
			for _, loss := range []float64{0, 0.001} {
				for _, dead := range [][2]bool{{true, true}, {true, false}, {false, true}} {
					t.Run(fmt.Sprintf("%v/%v/%v/%v", op, gone, loss, dead), func(t *testing.T) { lostFlight(t, op, clock.Time(gone), loss, dead) })
				}
			}
		}
	}
}

// lostFlight has what the nodes say lost for a while.
func lostFlight(t *testing.T, op ib.Opcode, gone clock.Time, loss float64, dead [2]bool) {
	const rtt, begin = 10e6, 1e9
	f, err := newFlood(op, rocev2.MTU4096, floodParams{
		loss: loss, probe: time.Millisecond, own: true, delay: rtt / 2, takes: 1e9, buffer: 1 << 21, size: 1 << 16, total: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 * goodputDepth {
		if err := f.recv(); err != nil {
			t.Fatal(err)
		}
	}
	f.touch(f.endpoint[0])
	var done [4]int
	for i, end := range []clock.Time{begin, begin + gone, begin + gone + 20*rtt, begin + gone + 40*rtt} {
		for f.now < end && f.step(nil) {
		}
		done[i] = f.done
		for k, n := range f.nodes {
			n.dead = i == 0 && dead[k]
		}
	}
	if f.err != nil {
		t.Fatal(f.err)
	}
	before, after := float64(done[0])/begin, float64(done[3]-done[2])/(20*rtt)
	t.Logf("%d messages, then %d: %.2f", done[0], done[1:], after/before)
	if after < 0.8*before {
		t.Errorf("%v messages, %.2f of the rate before", done, after/before)
	}
}

// TestReadAsksOnce: on a path that loses nothing, a READ is asked for again
// only while it is not known how long the way is, however long the answers lie
// in a queue.
func TestReadAsksOnce(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		for _, chunk := range []int{256 << 10, 0} {
			for _, rtt := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
				for _, rate := range []int64{1e8, 1e9} {
					p := floodParams{
						probe: time.Millisecond, own: own, delay: clock.Time(rtt / 2), line: 40e9, takes: rate, buffer: 16 << 20,
						size: 1 << 20, chunk: chunk, total: 10 << 8, window: deviceWindow(own),
					}
					f, err := newFlood(ib.OpRead, rocev2.MTU4096, p)
					if err != nil {
						t.Fatal(err)
					}
					what := fmt.Sprintf("own kind: %v, requests of %d KiB, round trip %v, %g Gb/s", own, chunk>>10, rtt, float64(rate)/1e9)
					if _, err := f.run(); err != nil {
						t.Errorf("%s: %v", what, err)
					}
					if n := f.endpoint[0].Stats().Retransmits; n > 8 {
						t.Errorf("%s: %d requests were sent again", what, n)
					}
				}
			}
		}
	}
}

// TestReadKeepsToItsRoom: while a response is missing, no more is asked for
// than there is room for after the gap. What is refused would be lost as well.
func TestReadKeepsToItsRoom(t *testing.T) {
	t.Parallel()
	const rate = 1e9
	for _, c := range []struct{ loss, share float64 }{{0.01, 0.8}, {0.05, 0.45}} {
		got := goodput(t, ib.OpRead, rocev2.MTU4096, floodParams{
			loss: c.loss, probe: time.Millisecond, own: true, delay: 5e6, line: 40e9, takes: rate, buffer: rate / 8 / 100,
			size: 1 << 20, chunk: 256 << 10, reads: 128, total: 100 << 8, window: deviceWindow(true),
		})
		if got < c.share*rate {
			t.Errorf("%g %% lost: %.2f of the link, want %.2f", c.loss*100, got/rate, c.share)
		}
	}
}
