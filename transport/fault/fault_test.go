package fault_test

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/fault"
)

var (
	addrA = netip.MustParseAddr("10.0.0.1")
	addrB = netip.MustParseAddr("10.0.0.2")
)

// packet returns BTH to pad; even PSNs are SENDs, odd ones acknowledgements.
func packet(psn, n int) []byte {
	op := rocev2.RCSendOnly
	if psn%2 == 1 {
		op, n = rocev2.RCAcknowledge, 0
	}
	p := rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: op, PKey: rocev2.DefaultPKey, DestQPN: 7, PSN: rocev2.PSN(psn)},
		Payload: bytes.Repeat([]byte{byte(psn)}, n),
	}
	return p.AppendTo(nil)
}

// send sends packets 0..n-1 in one batch.
func send(t *testing.T, l transport.Link, dst netip.Addr, n int) {
	t.Helper()
	path := transport.NewPath(l.Addr(), transport.Path{Dst: dst})
	b := transport.NewTxBatch(1 << 20)
	for i := range n {
		b.Commit(copy(b.Room(), packet(i, 64)), path)
	}
	if err := l.Send(b); err != nil {
		t.Error(err)
	}
}

// drain returns the PSNs that are there, those with a bad ICRC as -1-PSN.
func drain(t *testing.T, l transport.Link) []int {
	t.Helper()
	var psns []int
	b := transport.NewRxBatch(1)
	for {
		n, err := l.Recv(b)
		if err != nil {
			t.Error(err)
		}
		if n == 0 {
			return psns
		}
		for _, k := range b.Packets() {
			psn := int(k.Data[9])<<16 | int(k.Data[10])<<8 | int(k.Data[11])
			if k.ICRC == transport.ICRCBad {
				psn = -1 - psn
			}
			psns = append(psns, psn)
		}
	}
}

// Every action by rule, in both directions.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		rules []fault.Rule
		want  []int
	}{
		{"none", nil, []int{0, 1, 2, 3, 4, 5}},
		{"drop the second", []fault.Rule{{Action: fault.Drop, Nth: 2}}, []int{0, 2, 3, 4, 5}},
		{"drop every third", []fault.Rule{{Action: fault.Drop, Every: 3}}, []int{0, 1, 3, 4}},
		{"drop two acknowledgements", []fault.Rule{{Action: fault.Drop, Opcodes: []rocev2.Opcode{rocev2.RCAcknowledge}, Limit: 2}}, []int{0, 2, 4, 5}},
		{"drop by PSN", []fault.Rule{{Action: fault.Drop, PSNs: []rocev2.PSN{0, 5}}}, []int{1, 2, 3, 4}},
		{"drop by function", []fault.Rule{{Action: fault.Drop, Match: func(p *rocev2.Packet) bool { return len(p.Payload) > 0 }}}, []int{1, 3, 5}},
		{"duplicate", []fault.Rule{{Action: fault.Duplicate, PSNs: []rocev2.PSN{2}}}, []int{0, 1, 2, 2, 3, 4, 5}},
		{"reorder by one", []fault.Rule{{Action: fault.Reorder, PSNs: []rocev2.PSN{1}}}, []int{0, 2, 1, 3, 4, 5}},
		{"reorder by three", []fault.Rule{{Action: fault.Reorder, PSNs: []rocev2.PSN{1}, Distance: 3}}, []int{0, 2, 3, 4, 1, 5}},
		{"reorder the last", []fault.Rule{{Action: fault.Reorder, PSNs: []rocev2.PSN{5}}}, []int{0, 1, 2, 3, 4, 5}},
		{"corrupt", []fault.Rule{{Action: fault.Corrupt, PSNs: []rocev2.PSN{4}}}, []int{0, 1, 2, 3, -5, 5}},
		{"delay", []fault.Rule{{Action: fault.Delay, PSNs: []rocev2.PSN{0}, Delay: time.Second}}, []int{1, 2, 3, 4, 5, 0}},
		{"first rule decides", []fault.Rule{{Action: fault.Duplicate, Nth: 1}, {Action: fault.Drop, Limit: 4}}, []int{0, 0, 5}},
	} {
		for _, d := range []fault.Direction{fault.Tx, fault.Rx} {
			name := "tx/" + c.name
			if d == fault.Rx {
				name = "rx/" + c.name
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					a, b := fabric.Pair(addrA, addrB)
					rules := slices.Clone(c.rules)
					for i := range rules {
						rules[i].Direction = d
					}
					var wrapped *fault.Link
					if d == fault.Tx {
						wrapped = fault.New(a, 1, rules...)
						a = wrapped
					} else {
						wrapped = fault.New(b, 1, rules...)
						b = wrapped
					}
					defer a.Close()
					defer b.Close()
					send(t, a, addrB, 6)
					got := drain(t, b)
					time.Sleep(time.Minute)
					if got = append(got, drain(t, b)...); !slices.Equal(got, c.want) {
						t.Errorf("received %v, want %v", got, c.want)
					}
					if tx, rx := wrapped.Counts(); tx.Packets+rx.Packets != 6 {
						t.Errorf("counts %+v, %+v for 6 packets", tx, rx)
					}
				})
			})
		}
	}
}

// A received packet that is held back wakes Wait when it is due, although
// nothing comes from the network.
func TestWaitForDelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, inner := fabric.Pair(addrA, addrB)
		defer a.Close()
		b := fault.New(inner, 1, fault.Rule{Action: fault.Delay, Delay: time.Second, Direction: fault.Rx})
		send(t, a, addrB, 2)
		start := time.Now()
		var got []int
		for len(got) < 2 {
			if err := b.Wait(); err != nil {
				t.Fatal(err)
			}
			got = append(got, drain(t, b)...)
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("delayed by %v, want 1s", d)
		}
		woken := make(chan error)
		go func() {
			for {
				if err := b.Wait(); err != nil {
					woken <- err
					return
				}
			}
		}()
		synctest.Wait()
		b.Close()
		if err := <-woken; !errors.Is(err, transport.ErrClosed) {
			t.Errorf("woken with %v", err)
		}
	})
}

// A batch of which some packets were dropped reports a failure at the caller's
// index.
func TestSendErrorIndex(t *testing.T) {
	t.Parallel()
	inner, b := fabric.Pair(addrA, addrB)
	defer b.Close()
	a := fault.New(inner, 1, fault.Rule{Action: fault.Drop, Nth: 1})
	defer a.Close()
	batch := transport.NewTxBatch(1 << 16)
	good := transport.NewPath(addrA, transport.Path{Dst: addrB})
	wrong := transport.NewPath(addrA, transport.Path{Dst: netip.MustParseAddr("fd00::1")})
	for i, p := range []*transport.Path{good, good, wrong, good} {
		batch.Commit(copy(batch.Room(), packet(i, 4)), p)
	}
	var se *transport.SendError
	if err := a.Send(batch); !errors.As(err, &se) || se.Index != 2 || se.Failed != 1 {
		t.Errorf("error %v, want one failure at 2", err)
	}
	if got := drain(t, b); !slices.Equal(got, []int{1, 3}) {
		t.Errorf("received %v", got)
	}
}

// Rates hit about as many packets as they say, and the same ones for a seed.
func TestSeed(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) (psns []int, counts fault.Counts) {
		synctest.Test(t, func(t *testing.T) {
			inner, b := fabric.Pair(addrA, addrB)
			defer b.Close()
			a := fault.New(inner, seed,
				fault.Rule{Action: fault.Drop, Rate: 0.1},
				fault.Rule{Action: fault.Duplicate, Rate: 0.1},
				fault.Rule{Action: fault.Corrupt, Rate: 0.1},
				fault.Rule{Action: fault.Reorder, Rate: 0.1, Distance: 4},
				fault.Rule{Action: fault.Delay, Rate: 0.1, Delay: time.Millisecond})
			defer a.Close()
			send(t, a, addrB, 2000)
			time.Sleep(time.Second)
			psns = drain(t, b)
			counts, _ = a.Counts()
		})
		return psns, counts
	}
	psns, c := run(1)
	for _, n := range []uint64{c.Dropped, c.Duplicated, c.Corrupted, c.Reordered, c.Delayed} {
		if n < 90 || n > 260 {
			t.Errorf("counts %+v of 2000 packets at 10 %%", c)
		}
	}
	if want := int(c.Packets - c.Dropped + c.Duplicated); len(psns) != want {
		t.Errorf("%d packets received, want %d", len(psns), want)
	}
	if again, _ := run(1); !slices.Equal(psns, again) {
		t.Error("the same seed gave another run")
	}
	if other, _ := run(2); slices.Equal(psns, other) {
		t.Error("another seed gave the same run")
	}
}

// More packets than the caller's batch holds are delivered by later calls.
func TestSpill(t *testing.T) {
	t.Parallel()
	a, inner := fabric.Pair(addrA, addrB)
	defer a.Close()
	b := fault.New(inner, 1, fault.Rule{Action: fault.Duplicate})
	defer b.Close()
	path := transport.NewPath(addrA, transport.Path{Dst: addrB})
	batch := transport.NewTxBatch(1 << 20)
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, PKey: rocev2.DefaultPKey}, Payload: make([]byte, 4096)}
	const n = 40
	for range n {
		batch.Commit(len(p.AppendTo(batch.Room()[:0])), path)
	}
	if err := a.Send(batch); err != nil {
		t.Fatal(err)
	}
	if got := drain(t, b); len(got) != 2*n {
		t.Errorf("%d packets received, want %d", len(got), 2*n)
	}
}

// opener is a link that opens another port than the one asked for.
type opener struct{ transport.Link }

func (opener) OpenSourcePort(port uint16, exact bool) (uint16, error) {
	if exact {
		return 0, errors.New("taken")
	}
	return port + 1, nil
}

// The wrapper asks the link below for source ports.
func TestSourcePortIsPassedOn(t *testing.T) {
	t.Parallel()
	inner, _ := fabric.Pair(addrA, addrB)
	l := fault.New(opener{inner}, 1)
	defer l.Close()
	if got, err := transport.OpenSourcePort(l, 50000, false); got != 50001 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if _, err := transport.OpenSourcePort(l, 50000, true); err == nil {
		t.Error("no error")
	}
}

// sink is a link that takes and brings the same batch for ever.
type sink struct {
	transport.Link
	sent int
	data []byte
}

func (s *sink) Send(b *transport.TxBatch) error { s.sent += b.Len(); return nil }

func (s *sink) Recv(b *transport.RxBatch) (int, error) {
	b.Reset()
	for range 16 {
		b.Append(transport.RxPacket{Data: s.data})
	}
	return 16, nil
}

// Losing packets allocates nothing, in either direction; nor does losing none.
func TestNoAllocations(t *testing.T) {
	for _, c := range []struct {
		name string
		rate float64
		want int // packets of each batch of 16, in each direction
	}{{"none", 0, 16}, {"all", 1, 0}} {
		inner := &sink{data: append(packet(0, 64), 0, 0, 0, 0)}
		var rules []fault.Rule
		if c.rate > 0 {
			rules = append(rules, fault.Rule{Action: fault.Drop, Rate: c.rate})
		}
		l := fault.New(inner, 1, rules...)
		tx, rx := transport.NewTxBatch(1<<20), transport.NewRxBatch(1)
		path := transport.NewPath(addrA, transport.Path{Dst: addrB})
		for i := range 16 {
			tx.Commit(copy(tx.Room(), packet(i, 64)), path)
		}
		received := 0
		runs := 0
		if n := testing.AllocsPerRun(100, func() {
			runs++
			if err := l.Send(tx); err != nil {
				t.Error(err)
			}
			n, err := l.Recv(rx)
			if err != nil {
				t.Error(err)
			}
			received += n
		}); n != 0 {
			t.Errorf("%s lost: %v allocations per batch", c.name, n)
		}
		if inner.sent != runs*c.want || received != runs*c.want {
			t.Errorf("%s lost: %d sent and %d received in %d batches of 16", c.name, inner.sent, received, runs)
		}
	}
}

// copier is a link that copies what it receives into the batch, as the portable
// link and those of package fabric do.
type copier struct {
	transport.Link
	fill byte
}

func (c copier) Recv(b *transport.RxBatch) (int, error) {
	b.Reset()
	for range 40 {
		b.AppendCopy(transport.RxPacket{Data: bytes.Repeat([]byte{c.fill}, 4000)})
	}
	return b.Len(), nil
}

// The packets of a batch that was filtered in place keep their memory: no other
// batch gets it before the next Recv.
func TestFilteredBatchKeepsItsMemory(t *testing.T) {
	t.Parallel()
	l := fault.New(copier{fill: 1}, 1, fault.Rule{Action: fault.Drop, Rate: 0.01})
	mine, other := transport.NewRxBatch(64), transport.NewRxBatch(64)
	for range 10 {
		if _, err := l.Recv(mine); err != nil {
			t.Fatal(err)
		}
		if _, err := (copier{fill: 2}).Recv(other); err != nil {
			t.Fatal(err)
		}
		for i, p := range mine.Packets() {
			if p.Data[0] != 1 || p.Data[3999] != 1 {
				t.Fatalf("packet %d has become another batch's", i)
			}
		}
		if mine.Len() < 30 {
			t.Fatalf("%d packets of 40 are left", mine.Len())
		}
	}
}
