package cm_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// flooder sends REQs and does not follow them up, each with new IDs.
type flooder struct {
	*host
	qp     *verbs.QP
	ah     *verbs.AddressHandle
	target netip.AddrPort
	rng    *rand.Rand
	sent   int
}

func newFlooder(h *host, target netip.AddrPort, seed uint64) *flooder {
	f := &flooder{host: h, target: target, rng: rand.New(rand.NewPCG(seed, 1))}
	var err error
	f.qp, err = h.pd.CreateQP(verbs.QPConfig{Type: verbs.GSI, SendCQ: h.cq, RecvCQ: h.cq})
	must(h.t, err)
	must(h.t, f.qp.Activate(0))
	f.ah, err = h.pd.CreateAH(verbs.AddressVector{DGID: target.Addr()})
	must(h.t, err)
	return f
}

// burst sends n REQs.
func (f *flooder) burst(n int) {
	for i := range n {
		ip := mad.IPHeader{SourcePort: uint16(1 + f.rng.UintN(65535)), Source: f.dev.Addr(), Destination: f.target.Addr()}
		req := mad.REQ{
			LocalID: mad.CommID(1 + f.rng.Uint32()>>1), LocalGUID: mad.GUID(f.rng.Uint64()), LocalQPN: verbs.QPN(2 + f.rng.UintN(1<<23)),
			ServiceID: cm.TCP.Service(f.target.Port()), PKey: 0xffff, PathMTU: 3, MaxRetries: 15, RetryCount: 7,
			RemoteResponseTimeout: 20, LocalResponseTimeout: 20,
			Primary: mad.Path{LocalGID: f.dev.Addr(), RemoteGID: f.target.Addr(), AckTimeout: 14},
			Private: ip.AppendTo(nil),
		}
		at := i * mad.Len
		req.AppendTo(f.mr.Bytes()[at:at])
		must(f.t, f.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, SGList: []verbs.SGE{f.mr.Slice(at, mad.Len)},
			AH: f.ah, RemoteQPN: 1, RemoteQKey: verbs.HighQKey, Signaled: true}))
		f.sent++
	}
	var wc [64]verbs.WC
	for f.cq.Poll(wc[:]) > 0 {
	}
}

// A flood of 48,000 REQs a second from 16 sources, at a listener whose program
// accepts what it can: an honest dial succeeds within a second, and what the
// server holds is bounded. In virtual time.
func TestFlood(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]time.Duration{"quick server": 0, "slow server": 100 * time.Microsecond, "very slow server": 2 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) { testFlood(t, name, pause) })
	}
}

func testFlood(t *testing.T, name string, pause time.Duration) {
	const sources, perMilli, millis = 16, 3, 450
	addrs := []string{"192.0.2.1", "192.0.2.2"}
	for i := range sources {
		addrs = append(addrs, fmt.Sprintf("198.51.100.%d", i+1))
	}
	hosts := network(t, fabric.Config{}, addrs...)
	client, server := hosts[0], hosts[1]
	l, addr := server.listen(cm.ListenConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	qps := acceptAll(ctx, server, l, pause)

	end := time.Now().Add(millis * time.Millisecond)
	flooded := make(chan int, sources)
	for i, h := range hosts[2:] {
		f := newFlooder(h, addr, uint64(i))
		go func() {
			for time.Now().Before(end) {
				f.burst(perMilli)
				time.Sleep(time.Millisecond)
			}
			flooded <- f.sent
		}()
	}
	time.Sleep(300 * time.Millisecond) // the bounds are reached
	dialCtx, stop := context.WithTimeout(ctx, time.Second)
	c, err := cm.Dial(dialCtx, client.qp(verbs.RC), addr, cm.DialConfig{})
	stop()
	if err != nil {
		t.Errorf("%s: an honest dial: %v", name, err)
	} else {
		must(t, c.Close())
	}
	sent := 0
	for range sources {
		sent += <-flooded
	}
	const bound = 8192 // agent.Config.HalfOpen
	if n := cm.IDs(server.dev); n > bound+16 {
		t.Errorf("%s: the server holds %d IDs", name, n)
	}
	if sent < sources*perMilli*millis*9/10 {
		t.Errorf("%s: the flood had only %d requests", name, sent)
	}
	cancel()
	for _, h := range hosts[2:] {
		h.dev.Close()
	}
	if n := <-qps; n > bound+16 {
		t.Errorf("%s: the program had %d queue pairs at once", name, n)
	}
}

// acceptAll accepts all requests, one each pause, and closes the queue pairs of
// connections that have ended. At the end of ctx it says how many there were at
// most.
func acceptAll(ctx context.Context, h *host, l *cm.Listener, pause time.Duration) <-chan int {
	most := make(chan int, 1)
	go func() {
		open, highest := 0, 0
		gone := make(chan struct{}, 1<<16)
		for {
			r, err := l.Accept(ctx)
			if err != nil {
				most <- highest
				return
			}
			for len(gone) > 0 {
				<-gone
				open--
			}
			q, err := h.pd.CreateQP(small(h.cq))
			if err != nil {
				h.t.Error(err)
				return
			}
			c, err := r.Accept(ctx, q, cm.AcceptConfig{})
			if err != nil { // the peer has taken it back, or it has made room
				q.Close()
				continue
			}
			open++
			highest = max(highest, open)
			c.AfterEnd(func() { q.Close(); gone <- struct{}{} })
			time.Sleep(pause)
		}
	}()
	return most
}
