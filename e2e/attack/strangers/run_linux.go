package strangers

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/gosoftroce/rocev2/e2e/attack/victim"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/verbs"
)

const (
	dialLimit = 20 * time.Second
	pause     = 20 * time.Millisecond // between two honest peers
	settle    = 30 * time.Second      // after the floods
	maxMiB    = 192                   // far below the limit of our manifest, 256 MiB
	keptMiB   = 24                    // more than before, after settle
	soonLimit = 2 * time.Second       // of the median of honest dials
	floodTurn = 5 * time.Second
	shortTurn = time.Second
)

// target is what a flood is sent to.
type target struct {
	name            string
	port            uint16
	private         []byte // what makes the requests most like true ones
	native, foreign uint16 // where honest peers connect; 0: nowhere
}

// hello is that of package rdma.
var hello = append([]byte("RMSG\x01\x00\x00\x80\x00\x01\x00\x00\x00"), 0, 0, 0)

// stream is the block of a stream of package rdmanet.
func stream() []byte {
	b := rsocket.Block{Credits: 4, Slots: rsocket.Memory{Addr: 1 << 20, Key: 1, Length: rsocket.Slots}, Ring: rsocket.Memory{Addr: 1 << 21, Key: 1, Length: 1 << 18}}
	return b.AppendTo(nil)
}

// Run attacks a rocev2d, whose program is at a path, and a program of package
// rdma, one after the other. An error means that there was nothing to attack.
func Run(ctx context.Context, daemon string, short bool, tell func(string)) (all []Result, err error) {
	turn := floodTurn
	if short {
		turn = shortTurn
	}
	for _, v := range []struct {
		name    string
		start   func(*siege) error
		targets []target
	}{
		{"rocev2d", func(s *siege) (err error) {
			if s.daemon, err = startDaemon(daemon); err == nil {
				s.victim = s.daemon.Process
			}
			return err
		}, []target{
			{"regions", regionsPort, hello, regionsPort, rpingPort},
			{"rping", rpingPort, nil, regionsPort, rpingPort},
			{"rstream", streamPort, stream(), regionsPort, rpingPort},
		}},
		{"rdma.Listen", func(s *siege) (err error) {
			s.victim, err = startListen()
			return err
		}, []target{{"", listenPort, hello, listenPort, listenPort}}},
	} {
		s := siege{ctx: ctx, turn: turn, tell: tell, result: Result{Victim: v.name}}
		if err := v.start(&s); err != nil {
			return all, err
		}
		err := s.run(v.targets, short)
		s.victim.Stop()
		all = append(all, s.result)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// siege is what a victim goes through.
type siege struct {
	ctx    context.Context
	victim *victim.Process
	daemon *victim.Daemon // that is victim, if that is a rocev2d
	dev    *verbs.Device  // of the honest
	turn   time.Duration
	tell   func(string)
	result Result
}

func (s *siege) run(targets []target, short bool) (err error) {
	if s.dev, err = verbs.OpenAddr(netip.MustParseAddr(honestAddr), verbs.Config{}); err != nil {
		return err
	}
	defer s.dev.Close()
	s.result.Before, _ = s.victim.Memory()
	s.result.Load = load()
	for _, t := range targets {
		for _, rate := range []int{2000, 20_000, 100_000} {
			for _, many := range []bool{false, true} {
				if err := s.flood(&t, rate, many); err != nil {
					return err
				}
			}
		}
	}
	if s.daemon != nil {
		if err := s.silence(); err != nil {
			return err
		}
	}
	if !short {
		select {
		case <-time.After(settle):
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	var alive bool
	s.result.After, alive = s.victim.Memory()
	s.must(alive, "it has ended")
	s.must(short || s.result.After < s.result.Before+keptMiB, "%v after the floods it has %.0f MiB, and had %.0f before", settle, s.result.After, s.result.Before)
	return s.ctx.Err()
}

// load returns how many threads want each processor, 0 if the system does not
// say.
func load() (n float64) {
	b, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(b), &n)
	return n / float64(runtime.NumCPU())
}

func (s *siege) must(ok bool, format string, args ...any) {
	if !ok {
		s.result.Broken = append(s.result.Broken, fmt.Sprintf(format, args...))
	}
}

// flood sends REQs, and has honest peers connect meanwhile.
func (s *siege) flood(t *target, rate int, many bool) error {
	from := "one address"
	if many {
		from = "everywhere"
	}
	f := Flood{What: fmt.Sprintf("%s %d/s from %s", t.name, rate, from)}
	s.tell(s.result.Victim + ": " + f.What)
	sender, err := newSender(flood{to: netip.AddrPortFrom(netip.MustParseAddr(victimAddr), t.port), private: t.private, many: many, rate: rate})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.turn)
	defer cancel()
	type sent struct {
		n    int
		took time.Duration
		err  error
	}
	done := make(chan sent, 1)
	go func() {
		n, took, err := sender.run(ctx)
		done <- sent{n, took, err}
	}()
	var native, foreign []time.Duration
	for first := true; first || ctx.Err() == nil; first = false {
		f.try(&native, "native", func() error { return s.dialNative(t.native) })
		f.try(&foreign, "foreign", func() error { return s.dialForeign(t.foreign) })
		time.Sleep(pause)
	}
	r := <-done
	if r.err != nil {
		return r.err
	}
	f.Rate = float64(r.n) / r.took.Seconds()
	f.Honest = []Honest{honest("native", native), honest("foreign", foreign)}
	s.end(&f)
	return s.ctx.Err()
}

// try has an honest peer do something, and notes how long it took.
func (f *Flood) try(took *[]time.Duration, kind string, do func() error) {
	begin := time.Now()
	if err := do(); err != nil {
		f.Failures = append(f.Failures, kind+": "+err.Error())
		return
	}
	*took = append(*took, time.Since(begin))
}

// end judges a flood.
func (s *siege) end(f *Flood) {
	var alive bool
	f.Most, alive = s.victim.Memory()
	s.must(alive, "%s: it has ended", f.What)
	s.must(f.Most < maxMiB, "%s: it has %.0f MiB", f.What, f.Most)
	dials := len(f.Failures)
	for _, h := range f.Honest {
		dials += h.Count
		s.must(h.Count > 0 && h.Median < soonLimit, "%s: %d %s peers in %v", f.What, h.Count, h.Kind, h.Median)
	}
	if n := len(f.Failures); n > 1 && n > dials/50 { // sender and victim share the processors
		s.must(false, "%s: %d of %d honest peers fail: %s", f.What, n, dials, f.Failures[0])
	}
	s.result.Floods = append(s.result.Floods, *f)
}

// dialNative connects as package rdma does, and asks for a region.
func (s *siege) dialNative(port uint16) error {
	ctx, cancel := context.WithTimeout(s.ctx, dialLimit)
	defer cancel()
	d := rdma.Dialer{Device: s.dev}
	c, err := d.Dial(ctx, fmt.Sprintf("%s:%d", victimAddr, port))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Region(ctx, region)
	return err
}

// dialForeign connects without a word of what this side is, and sends a
// message, which the victim acknowledges.
func (s *siege) dialForeign(port uint16) error {
	ctx, cancel := context.WithTimeout(s.ctx, dialLimit)
	defer cancel()
	pd, err := s.dev.AllocPD()
	if err != nil {
		return err
	}
	defer pd.Close()
	cq, err := s.dev.CreateCQ(2)
	if err != nil {
		return err
	}
	defer cq.Close()
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxInline: 16})
	if err != nil {
		return err
	}
	defer qp.Close()
	c, err := cm.Dial(ctx, qp, netip.AddrPortFrom(netip.MustParseAddr(victimAddr), port), cm.DialConfig{NoECE: true})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Signaled: true, Inline: make([]byte, 16)}); err != nil {
		return err
	}
	var wc [1]verbs.WC
	if _, err := cq.Wait(ctx, wc[:]); err != nil {
		return err
	}
	return wc[0].Err()
}

// silence opens TCP connections that say nothing, or half a request, and asks
// the daemon meanwhile.
func (s *siege) silence() error {
	for _, k := range []struct {
		what       string
		n, sources int
		says       string
	}{
		{"200 silent TCP connections of one address", 200, 1, ""},
		{"2000 silent TCP connections of 200 addresses", 2000, 200, ""},
		{"2000 half requests of 200 addresses", 2000, 200, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "},
	} {
		s.tell(s.result.Victim + ": " + k.what)
		f := Flood{What: k.what}
		var open []net.Conn
		for i := range k.n {
			port := []int{victim.AdminPort, victim.HealthPort}[i%2]
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 200, 1, byte(i%k.sources+1))}}
			c, err := d.DialContext(s.ctx, "tcp", fmt.Sprintf("%s:%d", victimAddr, port))
			if err != nil {
				return err
			}
			_, _ = c.Write([]byte(k.says)) // it may be gone already
			open = append(open, c)
		}
		for _, q := range []struct {
			port int
			path string
		}{{victim.HealthPort, "/healthz"}, {victim.AdminPort, "/healthz"}, {victim.AdminPort, "/metrics"}, {victim.AdminPort, "/api/v1/status"}} {
			var took []time.Duration
			for range 20 {
				f.try(&took, q.path, func() error { _, err := s.daemon.Get(q.port, q.path); return err })
			}
			f.Honest = append(f.Honest, honest(fmt.Sprintf("%s at port %d", q.path, q.port), took))
		}
		for _, c := range open {
			c.Close()
		}
		s.end(&f)
	}
	return s.ctx.Err()
}
