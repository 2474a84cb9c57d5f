package adapter

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/race"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
)

// star returns adapters on one switch, at 100 Gb/s with cables of 1 µs.
func star(t testing.TB, hosts int, loss uint32, sw network.Switch, c Config) *Adapters {
	t.Helper()
	return starOf(t, hosts, loss, sw, c, 1, nil)
}

// starOf is star on a network of some parts.
func starOf(t testing.TB, hosts int, loss uint32, sw network.Switch, c Config, parts int, parallel func(int, func(int))) *Adapters {
	t.Helper()
	if sw.Buffer == 0 {
		sw.Buffer = 64 << 20
	}
	nc := network.Config{Hosts: hosts, Switches: []network.Switch{sw}, Seed: c.Seed, Parts: parts, Parallel: parallel}
	if c.Telemetry {
		nc.Trail, nc.MTU = 4, network.DefaultMTU+telemetryBytes+4*hopBytes
	}
	table := network.Table{Set: make([]uint16, hosts)}
	for i := range hosts {
		nc.Cables = append(nc.Cables, network.Cable{A: i, B: hosts, Rate: 100e9, Delay: event.Microsecond, Loss: loss})
		table.Set[i] = uint16(i)
		table.Sets = append(table.Sets, []uint16{uint16(i)})
	}
	nc.Tables = []network.Table{table}
	n, err := network.New(nc)
	must(t, err)
	a, err := New(n, hosts, c)
	must(t, err)
	return a
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustConnect(t testing.TB, a *Adapters, from, to int, c Connection) (x, y *QP) {
	t.Helper()
	x, y, err := a.Connect(from, to, c)
	must(t, err)
	return x, y
}

// settle runs until nothing is pending and checks that nothing is left.
func settle(t testing.TB, a *Adapters) {
	t.Helper()
	a.Network().Run(a.Now() + 10*event.Second)
	must(t, a.Check())
	must(t, a.Network().Check())
	if n := a.Network().Totals(); n.Inside() != 0 {
		t.Errorf("%d packets are under way for ever", n.Inside())
	}
	used := 0
	for _, p := range a.parts {
		p.reclaim()
	}
	for _, p := range a.parts {
		used += p.records.used
		busy := len(p.requests.all)
		for i := p.requests.free; i != 0; i = p.requests.all[i-1].next {
			busy--
		}
		free := uint32(0)
		for i := p.records.free; i != 0; i = p.records.at(i - 1).body {
			free++
		}
		r := &p.records
		if busy != 0 || free != r.all.n || len(r.freeBodies) != int(r.bodies.n) {
			t.Errorf("left: %d requests, %d records, %d of %d bodies", busy, r.all.n-free, int(r.bodies.n)-len(r.freeBodies), r.bodies.n)
		}
	}
	if used != 0 {
		t.Errorf("%d records are in use", used)
	}
}

// Every operation completes, with the bytes that were asked for, between native
// peers and foreign ones, at each path MTU.
func TestOperations(t *testing.T) {
	t.Parallel()
	for _, mtu := range []rocev2.MTU{rocev2.MTU256, rocev2.MTU1024, rocev2.MTU4096} {
		for _, foreign := range []bool{false, true} {
			a := star(t, 3, 0, network.Switch{}, Config{Seed: 1})
			x, y := mustConnect(t, a, 0, 2, Connection{Foreign: foreign, MTU: mtu, Depth: 64})
			if p := x.q.Peer(); p.Native == foreign || x.Peer() != y || y.Host().Number() != 2 {
				t.Fatalf("the peer is %+v", p)
			}
			var want, arrived int
			got := map[uint64]Completion{}
			y.Received = func(m Message) {
				if m.QP != y || m.Status != ib.StatusSuccess || m.Imm != 0 && m.Imm != m.Bytes+7 {
					t.Errorf("received %+v", m)
				}
				arrived += int(m.Bytes)
			}
			sizes := []uint32{0, 1, 255, 4096, 4097, 300001}
			for i, op := range []ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead, ib.OpWriteImm, ib.OpSendImm, ib.OpFetchAdd, ib.OpCompareSwap} {
				for k, size := range sizes {
					r := Request{Op: op, Bytes: size, Tag: uint64(16*i + k), Done: func(c Completion) { got[c.Tag] = c }}
					if op.Flags()&ib.OpArgument != 0 {
						r.Imm = size + 7
					}
					if op.Flags()&ib.OpAtomic != 0 {
						r.Bytes = 8
					}
					if op.Flags()&ib.OpConsumesRecv != 0 {
						want += int(size)
					}
					must(t, x.Post(r))
				}
			}
			settle(t, a)
			if len(got) != 7*len(sizes) || arrived != want {
				t.Fatalf("MTU %v, foreign %v: %d completions, %d bytes of messages arrived, not %d", mtu, foreign, len(got), arrived, want)
			}
			for _, c := range got {
				if c.Status != ib.StatusSuccess || c.End <= c.Start || c.QP != x {
					t.Errorf("MTU %v, foreign %v: %+v", mtu, foreign, c)
				}
			}
		}
	}
}

// What a seed has on a network that loses packets completes all the same, and
// is the same again. Packets are lost on cables and in buffers, in classes that
// are paused and others.
func TestSeeds(t *testing.T) {
	t.Parallel()
	seeds := uint64(40)
	if testing.Short() || race.Enabled {
		seeds = 16
	}
	digests := map[uint64]uint64{}
	var lost, again, paused, kept uint64
	for seed := range seeds {
		a := randomRun(t, seed)
		b := randomRun(t, seed)
		x, y := a.Network().Digest(), b.Network().Digest()
		if x != y || a.Now() != b.Now() {
			t.Fatalf("seed %d: digests %x and %x", seed, x, y)
		}
		if before, ok := digests[x]; ok {
			t.Errorf("seeds %d and %d have one digest", before, seed)
		}
		digests[x] = seed
		n := a.Network().Totals()
		s := a.Stats()
		lost, again, paused, kept = lost+n.Dropped(), again+s.Retransmits, paused+n.XOFFs, kept+s.Reordered
		if n.Disobeyed != 0 {
			t.Errorf("seed %d: hosts have sent %d packets of paused classes", seed, n.Disobeyed)
		}
	}
	t.Logf("%d seeds: %d packets lost, %d sent again, %d kept behind gaps, %d pauses", seeds, lost, again, kept, paused)
	if lost == 0 || again == 0 || paused == 0 || kept == 0 {
		t.Error("the seeds do not meet everything")
	}
}

func randomRun(t *testing.T, seed uint64) *Adapters {
	t.Helper()
	rng := event.NewRand(seed, 99)
	sw := network.Switch{Buffer: 1 << 20, Routing: network.Routing(rng.Uint64n(4))}
	for i := range sw.Classes {
		sw.Classes[i] = network.Class{Lossless: i == 3, Alpha: -1, XONOffset: 5000, EgressMax: 100_000,
			RED: network.RED{Kmin: 20_000, Kmax: 80_000, Pmax: 200_000}}
	}
	hosts := 2 + int(rng.Uint64n(6))
	a := star(t, hosts, uint32(rng.Uint64n(3)*1e6), sw, Config{Seed: seed, Real: false,
		Window: qp.WindowConfig{InitialBytes: 64 << 10 << rng.Uint64n(3), MaxBytes: 512 << 10}})
	want, done := 0, 0
	for range 3 * hosts {
		from := int(rng.Uint64n(uint64(hosts)))
		to := (from + 1 + int(rng.Uint64n(uint64(hosts-1)))) % hosts
		if rng.Uint64n(2) == 0 && from != 0 {
			to = 0
		}
		x, y := mustConnect(t, a, from, to, Connection{Foreign: rng.Uint64n(2) == 0, TrafficClass: uint8(rng.Uint64n(2)*26)<<2 | uint8(rng.Uint64n(2))*2,
			MTU: rocev2.MTU(1 + rng.Uint64n(5))})
		messages, left := 0, 4
		y.Received = func(Message) { messages++ }
		ops := [...]ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead, ib.OpWriteImm, ib.OpFetchAdd}
		var post func()
		post = func() { // the next one when one has completed
			left--
			r := Request{Op: ops[rng.Uint64n(5)], Bytes: uint32(rng.Uint64n(200_000)), Done: func(c Completion) {
				if c.Status != ib.StatusSuccess {
					t.Errorf("seed %d: %+v", seed, c)
				}
				if done++; left > 0 {
					post()
				}
			}}
			if r.Op == ib.OpFetchAdd {
				r.Bytes = 8
			}
			want++
			must(t, x.Post(r))
		}
		a.Network().At(event.Time(rng.Uint64n(100_000))*event.Nanosecond, post)
	}
	settle(t, a)
	if done != want || done != 12*hosts {
		t.Errorf("seed %d: %d of %d requests have completed", seed, done, want)
	}
	return a
}

// The digest is that of one processor and of two.
func TestDigestWithAnyProcessors(t *testing.T) { // not parallel: it changes GOMAXPROCS
	var digests []uint64
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for _, n := range []int{1, 2, 1, 2} {
		runtime.GOMAXPROCS(n)
		a := leafSpine(t, 4, 4, 4, Config{Seed: 5})
		permutation(t, a, 1<<20, Connection{})
		digests = append(digests, a.Network().Digest())
	}
	for _, d := range digests {
		if d != digests[0] {
			t.Fatalf("digests %x", digests)
		}
	}
}

// A class that is paused waits in the queue pairs, and others of the same host
// go on. Nothing is lost.
func TestPausedClass(t *testing.T) {
	t.Parallel()
	sw := network.Switch{Buffer: 2 << 20}
	for i := range sw.Classes {
		sw.Classes[i] = network.Class{Lossless: i == 3, Alpha: -3, Weight: 1, Strict: i == 6}
	}
	for _, shares := range []*Shares{nil, SharesOf(&sw.Classes)} {
		a := star(t, 5, 0, sw, Config{Shares: shares, Window: qp.WindowConfig{InitialBytes: 1 << 20, MaxBytes: 1 << 20}})
		const size = 4 << 20
		var bulk []event.Time
		for i := 1; i < 4; i++ {
			x, _ := mustConnect(t, a, i, 0, Connection{TrafficClass: 26 << 2})
			must(t, x.Post(Request{Op: ib.OpWrite, Bytes: size, Done: func(c Completion) { bulk = append(bulk, c.End) }}))
		}
		x, _ := mustConnect(t, a, 1, 4, Connection{TrafficClass: 48 << 2})
		var other Completion
		must(t, x.Post(Request{Op: ib.OpWrite, Bytes: size, Done: func(c Completion) { other = c }}))
		settle(t, a)
		n := a.Network().Totals()
		if n.Dropped() != 0 || n.XOFFs == 0 || n.Disobeyed != 0 || a.Stats().Retransmits != 0 {
			t.Errorf("%+v, %d retransmissions", n, a.Stats().Retransmits)
		}
		if len(bulk) != 3 || other.End == 0 || other.End > 400*event.Microsecond || bulk[2] < 1000*event.Microsecond {
			t.Errorf("three to one end at %v, the other at %v", bulk, other.End)
		}
	}
}

// Nothing on the way of a packet allocates.
func TestAllocatesNothing(t *testing.T) { // not parallel: it counts allocations
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead, ib.OpSend} {
		a := star(t, 2, 0, network.Switch{}, Config{})
		x, _ := mustConnect(t, a, 0, 1, Connection{})
		var again func(Completion)
		again = func(Completion) { must(t, x.Post(Request{Op: op, Bytes: 100_000, Done: again})) }
		for range 4 {
			again(Completion{})
		}
		a.Network().Run(event.Millisecond)
		before := a.Network().Totals().Delivered
		if n := testing.AllocsPerRun(100, func() { a.Network().Run(a.Now() + 50*event.Microsecond) }); n > 0 {
			t.Errorf("%v: %v allocations in 50 µs", op, n)
		}
		if n := a.Network().Totals().Delivered - before; n < 10_000 {
			t.Errorf("%v: only %d packets", op, n)
		}
	}
}

// What is outstanding when a queue pair is closed completes, and so does what
// its peer posts then.
func TestClose(t *testing.T) {
	t.Parallel()
	a := star(t, 2, 0, network.Switch{}, Config{})
	x, y := mustConnect(t, a, 0, 1, Connection{Retries: -1, Timeout: 8})
	var got, theirs []ib.Status
	for range 3 {
		must(t, x.Post(Request{Op: ib.OpWrite, Bytes: 1 << 20, Done: func(c Completion) { got = append(got, c.Status) }}))
	}
	if err := x.Post(Request{}); !errors.Is(err, ib.ErrNoOpcode) {
		t.Errorf("a request without an operation: %v", err)
	}
	a.Network().At(100*event.Microsecond, func() {
		x.Close()
		x.Close()
		if err := x.Post(Request{Op: ib.OpWrite}); !errors.Is(err, ErrClosed) {
			t.Errorf("a request for a queue pair that is closed: %v", err)
		}
		must(t, y.Post(Request{Op: ib.OpWrite, Bytes: 1, Done: func(c Completion) { theirs = append(theirs, c.Status) }}))
	})
	settle(t, a)
	if len(got) != 3 || got[0] != ib.StatusSuccess || got[1] != ib.StatusWRFlushErr || got[2] != ib.StatusWRFlushErr {
		t.Errorf("completed %v", got)
	}
	if len(theirs) != 1 || theirs[0] != ib.StatusRetryExcErr {
		t.Errorf("the peer's completed %v", theirs)
	}
	if n := x.Host().Engine().Counters().Device[engine.DropUnknownQP]; n == 0 {
		t.Error("nothing came for the queue pair that was closed")
	}
}

// Bad configuration is refused, and the error says what to do.
func TestRefuses(t *testing.T) {
	t.Parallel()
	a := star(t, 2, 0, network.Switch{}, Config{})
	x, _ := mustConnect(t, a, 0, 1, Connection{Depth: 1})
	second := func(_, _ *QP, err error) error { return err }
	for _, c := range []struct {
		err  error
		says string
	}{
		{second(a.Connect(0, 2, Connection{})), "host 2"},
		{second(a.Connect(-1, 0, Connection{})), "host -1"},
		{second(a.Connect(1, 1, Connection{})), "itself"},
		{second(a.Connect(0, 1, Connection{MTU: 17})), "MTU"},
		{second(a.Connect(0, 1, Connection{SrcPort: 80})), "SrcPort"},
		{second(a.Connect(0, 1, Connection{Depth: -1})), "Depth"},
		{second(a.Connect(0, 1, Connection{RdAtomic: 129})), "RdAtomic is 129"},
		{second(a.Connect(0, 1, Connection{Retries: 8})), "Retries"},
		{x.Post(Request{Op: ib.OpWrite, Local: ib.SGE{Length: 1}}), "Config.Real"},
		{x.PostRecv(ib.SGE{}), "Config.Real"},
		{func() error { _, err := x.Host().Register(nil); return err }(), "Config.Real"},
		{func() error { _, err := New(a.Network(), 0, Config{}); return err }(), "1 to 65535"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%v does not say %q", c.err, c.says)
		}
	}
	must(t, x.Post(Request{Op: ib.OpWrite, Bytes: 1}))
	if err := x.Post(Request{Op: ib.OpWrite, Bytes: 1}); !errors.Is(err, ib.ErrQueueFull) {
		t.Errorf("a full queue: %v", err)
	}
	settle(t, a)
	if n := a.hosts[1].e.Usage().QPs; n != 1 {
		t.Errorf("%d queue pairs are left of those that were refused", n)
	}
}

// Where packets are marked the sender gets notifications in a class of their
// own, and sends at less than the rate of its cable. Nothing is lost.
func TestNotifications(t *testing.T) {
	t.Parallel()
	sw := network.Switch{Buffer: 12 << 20}
	for i := range sw.Classes {
		sw.Classes[i] = network.Class{Lossless: i == 3, Alpha: -3, Strict: i == 6, Weight: 1,
			RED: network.RED{Kmin: 100_000, Kmax: 400_000, Pmax: 200_000}}
	}
	a := star(t, 5, 0, sw, Config{NotifyInterval: 4 * time.Microsecond})
	profile := cc.PaperProfile(100e9)
	profile.Burst = 1
	control := func() cc.Controller {
		return cc.NewDCQCN(cc.NewStatic(1<<20, cc.Config{MaxBytes: 1 << 20, MaxPSNs: 1 << 12}), &profile)
	}
	for i := 1; i < 5; i++ {
		x, _ := mustConnect(t, a, i, 0, Connection{TrafficClass: 26<<2 | network.ECT0, Congestion: control})
		must(t, x.Post(Request{Op: ib.OpWrite, Bytes: 8 << 20}))
	}
	settle(t, a)
	s, n := a.Stats(), a.Network().Totals()
	if s.CNPsReceived == 0 || s.CNPsReceived != s.CNPsSent || s.RateCuts == 0 || n.Marks == 0 || n.Dropped() != 0 {
		t.Errorf("%d notifications sent, %d received, %d cuts; %+v", s.CNPsSent, s.CNPsReceived, s.RateCuts, n)
	}
}

// What a host sends to two others leaves it packet by packet in turn, and with
// Turn in parts of as much: so the last packets are as far apart.
func TestTurns(t *testing.T) {
	t.Parallel()
	for turn, apart := range map[int]event.Time{0: event.Microsecond / 2, 64 << 10: 6 * event.Microsecond} {
		a := star(t, 3, 0, network.Switch{}, Config{Seed: 1, Turn: turn, Window: qp.WindowConfig{InitialBytes: 1 << 20}})
		var ends []event.Time
		for to := 1; to <= 2; to++ {
			x, _ := mustConnect(t, a, 0, to, Connection{MTU: rocev2.MTU4096})
			must(t, x.Post(Request{Op: ib.OpWrite, Bytes: 512 << 10, Done: func(c Completion) { ends = append(ends, c.End) }}))
		}
		settle(t, a)
		if d := ends[1] - ends[0]; d > apart || turn > 0 && d < apart/3 {
			t.Errorf("turns of %d bytes: one ends %v after the other", turn, d)
		}
	}
}

// Queue pairs that together may have little in flight to a host share that, and
// use all of it, in turns of a packet.
func TestTurnsShareTheWindowOfAPeer(t *testing.T) {
	t.Parallel()
	a := star(t, 2, 0, network.Switch{}, Config{Seed: 1, Window: qp.WindowConfig{InitialBytes: 96 << 10, MaxBytes: 96 << 10}})
	const pairs, bytes = 16, 256 << 10
	var last event.Time
	for range pairs {
		x, _ := mustConnect(t, a, 0, 1, Connection{MTU: rocev2.MTU1024})
		must(t, x.Post(Request{Op: ib.OpWrite, Bytes: bytes, Done: func(c Completion) { last = max(last, c.End) }}))
	}
	settle(t, a)
	if alone := event.Time(pairs * bytes * 8 * 1106 / 1024 * 10); last > alone*3/2 {
		t.Errorf("all took %v, which the cable does in %v", last, alone)
	}
}
