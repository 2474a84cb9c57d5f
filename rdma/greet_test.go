package rdma_test

import (
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/internal/testforge"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Nothing is made for a request whose peer does not answer, whatever it says
// that it is, and Accept does not return it.
func TestForgedRequestsMakeNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sw := fabric.NewSwitch(fabric.Config{})
		open := func(addr string) *verbs.Device {
			port, err := sw.Attach(netip.MustParseAddr(addr))
			must(t, err)
			dev, err := verbs.OpenLink(port, verbs.Config{})
			must(t, err)
			t.Cleanup(func() { dev.Close() })
			return dev
		}
		server, forger := open("192.0.2.1"), open("192.0.2.2")
		lc := rdma.ListenConfig{Device: server}
		l, err := lc.Listen(t.Context(), "192.0.2.1:0")
		must(t, err)
		accepted := make(chan error, 1)
		go func() {
			_, err := l.Accept(t.Context())
			accepted <- err
		}()
		synctest.Wait()
		before := server.Stats()
		testforge.Requests(t, forger, l.Addr().(*cm.Addr).AddrPort, nil, 100)
		time.Sleep(time.Second)
		if got := cm.ReadStats(l.Device()).HalfOpen; got != 100 {
			t.Errorf("%d requests have come", got)
		}
		if after := server.Stats(); after.QPs != before.QPs || after.MRs != before.MRs {
			t.Errorf("%d queue pairs and %d regions; before there were %d and %d", after.QPs, after.MRs, before.QPs, before.MRs)
		}
		time.Sleep(30 * time.Second)
		if got := cm.ReadStats(l.Device()).HalfOpen; got != 0 {
			t.Errorf("%d requests are still there", got)
		}
		must(t, l.Close())
		if err := <-accepted; err == nil {
			t.Error("a forged request was accepted")
		}
	})
}

// Admit is asked before anything is made, and what it says the peer learns.
func TestAdmit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		var l *rdma.Listener
		var d *rdma.Dialer
		l, d = listener(t, rdma.ListenConfig{Admit: func(client netip.Addr, foreign bool) error {
			asked.Add(1)
			if client != d.Device.Addr() {
				t.Errorf("from %v", client)
			}
			if foreign {
				return errors.New("speak the protocol")
			}
			return nil
		}})
		connect(t, l, d)
		before := l.Device().Stats().QPs
		d.Foreign = true
		for _, how := range []string{"Accept", "Request"} {
			if how == "Request" { // which asks, too
				go l.Request(t.Context())
			}
			_, err := d.Dial(testContext(t), l.Addr().String())
			var rejected *rdma.RejectedError
			if !errors.As(err, &rejected) || !strings.HasPrefix(string(rejected.PrivateData), "speak the protocol") {
				t.Errorf("%s: %v", how, err)
			}
		}
		if n := l.Device().Stats().QPs; n != before || asked.Load() < 3 {
			t.Errorf("%d queue pairs more, asked %d times", n-before, asked.Load())
		}
	})
}
