package cm_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// oracle is a link whose peers' hosts say that the port is closed, some time
// after they are asked.
type oracle struct {
	transport.Wrapper
	after   time.Duration
	refuses func() bool

	asked, asking atomic.Int32 // in all, and at the moment
}

func (o *oracle) CanProbePort() bool { return true }

func (o *oracle) ProbePort(_ netip.Addr, _ []byte, stop <-chan struct{}) bool {
	o.asked.Add(1)
	o.asking.Add(1)
	defer o.asking.Add(-1)
	select {
	case <-time.After(o.after):
		if o.refuses() {
			return true
		}
		<-stop
	case <-stop:
	}
	return false
}

func asking(t *testing.T, sw *fabric.Switch, addr string) (*host, *oracle) {
	port, err := sw.Attach(netip.MustParseAddr(addr))
	must(t, err)
	o := &oracle{Wrapper: transport.Wrapper{Link: port}, after: time.Millisecond, refuses: func() bool { return true }}
	dev, err := verbs.OpenLink(o, verbs.Config{})
	must(t, err)
	return newHostOn(t, dev), o
}

// A dial to a host where no device is open fails at once; all dials learn it by
// one probe.
func TestNoDevice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, o := asking(t, fabric.NewSwitch(fabric.Config{}), "192.0.2.1")
		nobody := netip.MustParseAddrPort("192.0.2.2:7471")
		start := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			q := h.qp(verbs.RC)
			wg.Go(func() {
				_, err := cm.Dial(h.context(), q, nobody, cm.DialConfig{})
				wantErr(t, "dial", err, cm.ErrNoDevice)
				wantErr(t, "dial", err, syscall.ECONNREFUSED)
			})
		}
		wg.Go(func() {
			_, err := cm.Resolve(h.context(), h.dev, nobody, cm.ResolveConfig{})
			wantErr(t, "resolve", err, cm.ErrNoDevice)
		})
		wg.Wait()
		if took := time.Since(start); took > 50*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		if asked, asking := o.asked.Load(), o.asking.Load(); asked != 1 || asking != 0 {
			t.Errorf("%d probes, %d still run", asked, asking)
		}
		h.dev.Close()
	})
}

// What a host says, or another in its name, ends nothing that has an answer: a
// dial that is answered soon, one that the peer has asked to wait, and a
// connection.
func TestForgedNoDevice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sw := fabric.NewSwitch(fabric.Config{})
		h, o := asking(t, sw, "192.0.2.1")
		server := hostOn(t, sw, "192.0.2.2")
		l, addr := server.listen(cm.ListenConfig{})
		dialed := make(chan error)
		var c *cm.Conn
		q := h.qp(verbs.RC)
		o.after = 300 * time.Millisecond // the request comes again after 250, and the listener asks for time
		go func() {
			var err error
			c, err = cm.Dial(h.context(), q, addr, cm.DialConfig{})
			dialed <- err
		}()
		time.Sleep(time.Second)
		if n := o.asked.Load(); n != 1 {
			t.Errorf("%d probes", n)
		}
		r, err := l.Accept(t.Context())
		must(t, err)
		_, err = r.Accept(t.Context(), server.qp(verbs.RC), cm.AcceptConfig{})
		must(t, err)
		must(t, <-dialed)
		time.Sleep(time.Second)
		if err, n := c.Err(), o.asking.Load(); err != nil || n != 0 {
			t.Errorf("the connection: %v; %d probes run", err, n)
		}
		h.dev.Close()
		server.dev.Close()
	})
}

// A dial that waits gets through whatever was missing: the device, the
// listener. When its context ends it says what it has waited for.
func TestWaitForServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sw := fabric.NewSwitch(fabric.Config{})
		h, o := asking(t, sw, "192.0.2.1")
		addr := netip.MustParseAddrPort("192.0.2.2:7471")
		var there atomic.Bool
		o.refuses = func() bool { return !there.Load() }
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(5000))*time.Millisecond+500*time.Millisecond)
		defer cancel()
		_, err := cm.Dial(ctx, h.qp(verbs.RC), addr, cm.DialConfig{WaitForServer: true})
		wantErr(t, "no server", err, context.DeadlineExceeded)

		connected := make(chan error)
		q := h.qp(verbs.RC)
		go func() {
			_, err := cm.Dial(h.context(), q, addr, cm.DialConfig{WaitForServer: true})
			connected <- err
		}()
		time.Sleep(10 * time.Second)
		there.Store(true)
		server := hostOn(t, sw, "192.0.2.2")
		must(t, cm.Start(server.dev)) // which refuses
		time.Sleep(10 * time.Second)
		start := time.Now()
		l, err := cm.Listen(server.dev, addr, cm.ListenConfig{})
		must(t, err)
		r, err := l.Accept(t.Context())
		must(t, err)
		_, err = r.Accept(t.Context(), server.qp(verbs.RC), cm.AcceptConfig{})
		must(t, err)
		must(t, <-connected)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("it took %v after somebody listens", took)
		}
		h.dev.Close()
		server.dev.Close()
	})
}

// No program listens: the error is one that programs know from TCP.
func TestRefusal(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	must(t, cm.Start(server.dev))
	_, err := cm.Dial(client.context(), client.qp(verbs.RC), netip.AddrPortFrom(server.dev.Addr(), 9), cm.DialConfig{})
	wantRejected(t, "dial", err, cm.ReasonInvalidService)
	wantErr(t, "dial", err, syscall.ECONNREFUSED)
	_, err = cm.Resolve(client.context(), client.dev, netip.AddrPortFrom(server.dev.Addr(), 9), cm.ResolveConfig{})
	wantErr(t, "resolve", err, syscall.ECONNREFUSED)
	if errors.Is(&cm.RejectedError{Reason: cm.ReasonConsumer}, syscall.ECONNREFUSED) {
		t.Error("a program that rejects is one that does not listen")
	}
}

// A dial that ends in the moment in which the probe begins leaves no probe.
func TestNoProbeAfterADial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, o := asking(t, fabric.NewSwitch(fabric.Config{}), "192.0.2.1")
		o.after = time.Hour
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				peer := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), 7471)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				cm.Resolve(ctx, h.dev, peer, cm.ResolveConfig{})
			})
		}
		wg.Wait()
		synctest.Wait()
		if n := o.asking.Load(); n != 0 {
			t.Errorf("%d probes still run", n)
		}
		h.dev.Close()
	})
}
