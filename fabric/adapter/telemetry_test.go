package adapter

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/cores"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// tells is a switch that notes a hop of each packet that asks for it.
var tells = network.Switch{Program: func(v *network.View) network.Hooks {
	return network.Hooks{Dequeue: func(p *network.Packet, at network.Place) network.Verdict {
		if p.Flags&network.Telemetry != 0 && v.Note(v.Hop(at.Out)) {
			p.Size += hopBytes
		}
		return network.Default
	}}
}}

// witness is a window that keeps what it is told.
type witness struct {
	*cc.Static
	told  []cc.Hop // the first hop of each call
	acks  int      // acknowledgements before which it was told
	fresh bool
}

func (w *witness) Hops(_ clock.Time, hops []cc.Hop) {
	w.told = append(w.told, hops[0])
	w.fresh = true
}

func (w *witness) Acked(clock.Time, *cc.Flight, uint64) bool {
	if w.fresh {
		w.acks++
	}
	w.fresh = false
	return false
}

// witnesses are the controllers of both ends of a connection.
func witnesses(c *Connection) *[]*witness {
	var all []*witness
	c.Congestion = func() cc.Controller {
		w := &witness{Static: cc.NewStatic(256<<10, cc.Config{MaxBytes: 256 << 10, MaxPSNs: 1024})}
		all = append(all, w)
		return w
	}
	return &all
}

// The side that sends data is told of the port that it leaves the network by:
// with WRITEs and SENDs by acknowledgements, with READs by the data itself.
// What is told gets newer, also where packets are lost and selective
// acknowledgements bring it. The other side is told nothing.
func TestTelemetry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op   ib.Opcode
		loss uint32
		real bool
		port uint32 // of the switch: where the data goes
	}{
		{ib.OpWrite, 0, false, 1}, {ib.OpSend, 0, false, 1}, {ib.OpRead, 0, false, 0},
		{ib.OpWrite, 5e6, false, 1}, {ib.OpRead, 5e6, false, 0}, {ib.OpWrite, 0, true, 1},
	} {
		name := fmt.Sprintf("%v, %d lost, real %v", c.op, c.loss, c.real)
		a := star(t, 3, c.loss, tells, Config{Telemetry: true, Real: c.real, Seed: 3})
		var cfg Connection
		all := witnesses(&cfg)
		x, y := mustConnect(t, a, 0, 1, cfg)
		r := Request{Op: c.op, Bytes: 4 << 20}
		var from, to []byte
		if c.real {
			from, to = bytes.Repeat([]byte{7}, 4<<20), make([]byte, 4<<20)
			here, err := x.Host().Register(from)
			must(t, err)
			there, err := y.Host().Register(to)
			must(t, err)
			r.Bytes, r.Local, r.Remote = 0, here.All(), ib.RemoteAddr{Addr: there.Addr(), RKey: there.RKey()}
		}
		status := ib.StatusGeneralErr
		r.Done = func(c Completion) { status = c.Status }
		must(t, x.Post(r))
		settle(t, a)
		w, other := (*all)[0], (*all)[1]
		if status != ib.StatusSuccess || !bytes.Equal(from, to) || len(other.told) > 0 {
			t.Errorf("%s: %v; the other side is told %d times", name, status, len(other.told))
		}
		if len(w.told) < 20 || w.acks < 20 {
			t.Errorf("%s: told %d times, before %d acknowledgements", name, len(w.told), w.acks)
		}
		if c.loss > 0 && a.Stats().Retransmits == 0 {
			t.Errorf("%s: nothing was sent again", name)
		}
		for i, h := range w.told {
			if h.Node != 3 || h.Port != c.port || h.Rate != 100e9 || i > 0 && (h.At <= w.told[i-1].At || h.Sent <= w.told[i-1].Sent) {
				t.Fatalf("%s: told %+v, after %+v", name, h, w.told[max(i-1, 0)])
			}
		}
		x.Close()
		y.Close()
		if n := len(x.h.echoes) + len(y.h.echoes); n != 0 {
			t.Errorf("%s: hops of %d connections that are closed", name, n)
		}
	}
}

// Connections between the same hosts are told each of its own packets, the same
// in a network of any number of parts.
func TestTelemetryInParts(t *testing.T) {
	t.Parallel()
	var want string
	for _, parts := range []int{1, 4} {
		c := cores.New(parts)
		a := starOf(t, 4, 1e6, tells, Config{Telemetry: true, PerPacket: true, Seed: 5}, parts, c.Do)
		got := ""
		var lists []*[]*witness
		for i := range 6 {
			var cfg Connection
			lists = append(lists, witnesses(&cfg))
			x, _ := mustConnect(t, a, i%2, 2+i/3, cfg)
			must(t, x.Post(Request{Op: []ib.Opcode{ib.OpWrite, ib.OpRead}[i%2], Bytes: 1 << 20}))
		}
		settle(t, a)
		c.Close()
		for i, l := range lists {
			w := (*l)[0]
			got += fmt.Sprintln(w.told, w.acks)
			if len(w.told) == 0 {
				t.Errorf("%d is told nothing", i)
			}
		}
		got += fmt.Sprintf("%x %+v", a.net.Digest(), a.Stats())
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("with %d parts it is another run", parts)
		}
	}
}

// A switch that is asked for nothing tells nothing, and a network without room
// costs no more than one whose hosts do not ask.
func TestWithoutTelemetry(t *testing.T) {
	t.Parallel()
	a := star(t, 2, 0, tells, Config{})
	var cfg Connection
	all := witnesses(&cfg)
	x, _ := mustConnect(t, a, 0, 1, cfg)
	must(t, x.Post(Request{Op: ib.OpWrite, Bytes: 1 << 20}))
	settle(t, a)
	if n := len((*all)[0].told); n > 0 {
		t.Errorf("told %d times", n)
	}
}

// Telemetry allocates nothing once it runs.
func TestTelemetryAllocatesNothing(t *testing.T) { // not parallel: it counts allocations
	a := star(t, 2, 0, tells, Config{Telemetry: true})
	x, _ := mustConnect(t, a, 0, 1, Connection{Congestion: func() cc.Controller {
		return cc.NewHPCC(cc.HPCCConfig{Burst: 1}, cc.Config{MaxBytes: 1 << 20, MaxPSNs: 1 << 12})
	}})
	var again func(Completion)
	again = func(Completion) { must(t, x.Post(Request{Op: ib.OpWrite, Bytes: 100_000, Done: again})) }
	for range 4 {
		again(Completion{})
	}
	a.Network().Run(2 * event.Millisecond)
	if n := testing.AllocsPerRun(100, func() { a.Network().Run(a.Now() + 50*event.Microsecond) }); n > 0 {
		t.Errorf("%v allocations in 50 µs", n)
	}
}

// With a port for each packet ECMP is as good as switches that spray: each
// packet takes one of the ways, none a way for itself.
func TestPerPacket(t *testing.T) {
	t.Parallel()
	slowest := func(c Config) event.Time {
		c.Window = qp.WindowConfig{InitialBytes: 256 << 10, MaxBytes: 256 << 10}
		a := leafSpineBy(t, 4, 8, 8, c, network.ECMP)
		var ends []event.Time
		for i := range 32 {
			x, _ := mustConnect(t, a, i, (i+16)%32, Connection{})
			must(t, x.Post(Request{Op: ib.OpWrite, Bytes: 1 << 20, Done: func(c Completion) { ends = append(ends, c.End) }}))
		}
		a.Network().Run(event.Second)
		must(t, a.Check())
		if len(ends) != 32 {
			t.Fatalf("%d of 32 WRITEs are done", len(ends))
		}
		return slices.Max(ends)
	}
	flow, packet := slowest(Config{}), slowest(Config{PerPacket: true})
	if flow < packet*3/2 {
		t.Errorf("the last WRITE is done at %v, with a port for each packet at %v", flow, packet)
	}
	n, err := network.New(network.Config{Hosts: 1, Switches: []network.Switch{{Buffer: 1 << 20}}, Tables: []network.Table{{Set: []uint16{0}, Sets: [][]uint16{{0}}}},
		Cables: []network.Cable{{A: 0, B: 1, Rate: 1e9}}})
	must(t, err)
	if _, err := New(n, 1, Config{PerPacket: true, Real: true}); err == nil {
		t.Error("PerPacket with Real is taken")
	}
}
