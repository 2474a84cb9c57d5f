package worldtest_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/fabric/worldtest"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/transport/fault"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// pair is a network of two hosts and a cable.
func pair(t testing.TB) network.Config {
	t.Helper()
	g, err := topology.Pair(topology.Cable{Rate: 100 * topology.Gbps, Delay: 10 * topology.Microsecond})
	must(t, err)
	c, err := g.Network(topology.Plan{Profile: topology.Spectrum()})
	must(t, err)
	return c
}

// side is a device with a connected queue pair.
type side struct {
	dev *verbs.Device
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
}

// connected returns queue pairs of two devices that are connected.
func connected(t testing.TB, devs ...*verbs.Device) (sides [2]side) {
	t.Helper()
	for i, dev := range devs {
		s := side{dev: dev}
		pd, err := dev.AllocPD()
		must(t, err)
		s.cq, err = dev.CreateCQ(64)
		must(t, err)
		s.mr, err = pd.RegisterMemory(make([]byte, 1<<20), verbs.LocalWrite|verbs.RemoteWrite)
		must(t, err)
		s.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, MaxSendWR: 32, MaxRecvWR: 4, MaxInline: 64})
		must(t, err)
		sides[i] = s
	}
	verbstest.Connect(t, sides[0].qp, sides[1].qp)
	return sides
}

// write writes the first bytes of a side's memory to the other one's.
func write(ctx context.Context, from, to *side, n int) error {
	wr := verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: []verbs.SGE{from.mr.Slice(0, n)}, Remote: to.mr.RemoteAt(0)}
	if err := from.qp.PostSend(wr); err != nil {
		return err
	}
	var wc [1]verbs.WC
	if _, err := from.cq.Wait(ctx, wc[:]); err != nil {
		return err
	}
	return wc[0].Err()
}

// TestTimes are what cables take: the delay twice and the serialization of
// request and acknowledgement, and a nanosecond or two on each side.
func TestTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: pair(t)})
		s := connected(t, w.Device(0), w.Device(1))
		begin := w.Now()
		must(t, write(t.Context(), &s[0], &s[1], 8))
		const packets = (28 + 12 + 16 + 8 + 4 + 38 + 84) * 8 / 100 // WRITE and ACK at 100 Gb/s, in ns
		if took := w.Now() - begin - 20*time.Microsecond; took < packets || took > packets+4 {
			t.Errorf("8 bytes take %v more than two delays, want %d ns", took, packets)
		}
		begin = w.Now()
		must(t, write(t.Context(), &s[0], &s[1], 1<<20))
		if took := w.Now() - begin; took < 104*time.Microsecond || took > 150*time.Microsecond {
			t.Errorf("1 MiB takes %v", took)
		}
	})
}

// recorder is a test that fails without an end.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// TestLimit: programs that wait for ever beside connections that look after
// their peers are ended, and the test says where they wait.
func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		w := worldtest.New(r, worldtest.Config{Network: pair(t), Limit: 10 * time.Minute})
		echoing(t, w, 0, rdma.Region{})
		d := rdma.Dialer{Device: w.Device(1), KeepAlive: time.Second}
		c, err := d.Dial(t.Context(), worldtest.Addr(0).String()+":7471")
		must(t, err)
		_, err = c.Recv(context.Background(), nil) // of an echo that has heard nothing
		if took := w.Now(); err == nil || took != 10*time.Minute {
			t.Errorf("Recv ends after %v: %v", took, err)
		}
		c.Close()
		time.Sleep(time.Minute)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.errors) == 0 || !strings.Contains(r.errors[0], "10m0s of virtual time") || !strings.Contains(r.errors[0], "worldtest_test.TestLimit") {
			t.Errorf("the test says %q", r.errors)
		}
	})
}

// stopped is a test that a fatal error ends by a panic.
type stopped struct{ testing.TB }

func (stopped) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// fatal returns what f fails a test with.
func fatal(t *testing.T, f func(testing.TB)) (text string) {
	defer func() { text, _ = recover().(string) }()
	f(stopped{t})
	return ""
}

// TestMistakes are errors that say what was wrong.
func TestMistakes(t *testing.T) {
	t.Parallel()
	wants := func(t *testing.T, want, got string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	wants(t, "synctest.Test", fatal(t, func(f testing.TB) { worldtest.New(f, worldtest.Config{Network: pair(t)}) }))
	synctest.Test(t, func(t *testing.T) {
		wants(t, "0 hosts", fatal(t, func(f testing.TB) { worldtest.New(f, worldtest.Config{}) }))
		bare := pair(t)
		bare.Hosts = 3
		bare.Cables = bare.Cables[:1]
		w := worldtest.New(stopped{t}, worldtest.Config{Network: bare})
		wants(t, "host 9: there are 0 to 2", fatal(t, func(testing.TB) { w.Device(9) }))
		wants(t, "host 2 has no cable", fatal(t, func(testing.TB) { w.Device(2) }))
		wants(t, "congestion", fatal(t, func(f testing.TB) {
			worldtest.New(f, worldtest.Config{Network: pair(t), Device: verbs.Config{Congestion: "none"}}).Device(0)
		}))
		r := &recorder{TB: t}
		worldtest.New(r, worldtest.Config{Network: pair(t)}).SetCable(1, false)
		wants(t, "cable 1: there are 0 to 0", strings.Join(r.errors, ""))
		w.Device(0)
		_, err := w.Port(0)
		wants(t, "has a device already", fmt.Sprint(err))
		must(t, w.Device(0).Close())
		p, err := w.Port(0)
		must(t, err)
		must(t, p.Close())
		w.Device(0)
	})
}

// TestClosedInFlight: devices that are closed in the middle of transfers both
// ways leave nothing, and another one can take the port.
func TestClosedInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: pair(t), SendBuffer: 1, RecvBuffer: 64 << 10})
		for round := range 20 {
			s := connected(t, w.Device(0), w.Device(1))
			var both sync.WaitGroup
			for i := range 2 {
				both.Go(func() { write(t.Context(), &s[i], &s[1-i], 1<<20) })
			}
			time.Sleep(time.Duration(round) * 10 * time.Microsecond)
			must1(t, s[round%2].dev.Close())
			both.Go(func() { must1(t, s[1-round%2].dev.Close()) })
			both.Wait()
		}
		s := connected(t, w.Device(0), w.Device(1))
		must(t, write(t.Context(), &s[0], &s[1], 1<<20))
	})
}

// TestPort: a device of its own configuration on a link that loses packets
// learns of its cable, and a peer that is gone costs no real time.
func TestPort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: pair(t)})
		p, err := w.Port(0)
		must(t, err)
		var rules []fault.Rule
		for _, text := range []string{"drop=10%", "corrupt=5%:dir=out", "delay=5%:by=20us"} {
			rule, err := fault.ParseRule(text)
			must(t, err)
			rules = append(rules, rule)
		}
		dev, err := verbs.OpenLink(fault.New(p, 1, rules...), verbs.Config{Spin: -1})
		must(t, err)
		defer dev.Close()
		s := connected(t, dev, w.Device(1))
		copy(s[0].mr.Bytes(), text(1, 1<<20))
		must(t, write(t.Context(), &s[0], &s[1], 1<<20))
		if !bytes.Equal(s[1].mr.Bytes(), text(1, 1<<20)) {
			t.Error("what was written is not what has come")
		}
		for _, up := range []bool{false, true} {
			w.SetCable(0, up)
			e, err := dev.AsyncEvent(t.Context())
			must(t, err)
			want := map[bool]verbs.Event{false: verbs.EventPortError, true: verbs.EventPortActive}[up]
			if e.Event != want || w.Up(0) != up {
				t.Errorf("the cable is up: %v, and the event %v", up, e)
			}
		}
		must(t, w.Device(1).Close())
		begin := w.Now()
		err = write(t.Context(), &s[0], &s[1], 8)
		if took := w.Now() - begin; err == nil || took < 100*time.Millisecond {
			t.Errorf("a peer that is gone, after %v: %v", took, err)
		}
	})
}
