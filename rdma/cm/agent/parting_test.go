package agent

import (
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// What was accepted and released waits a moment for the RTU. A peer that asks
// for more time does not make that longer.
func TestPartingIsShort(t *testing.T) {
	t.Parallel()
	g := newGreeted(t, Config{})
	g.Greet(tcpService, nil)
	f := forger{rand.New(rand.NewPCG(1, 1)), theClient}
	path, b := f.next()
	var req mad.REQ
	if err := req.Parse(b); err != nil {
		t.Fatal(err)
	}
	g.Receive(g.now, path, b)
	e, _ := g.Event()
	if err := g.Accept(g.now, e.ID, &mad.REP{LocalQPN: 77}); err != nil {
		t.Fatal(err)
	}
	g.Release(g.now, e.ID)
	mra := mad.MRA{LocalID: req.LocalID, RemoteID: mad.CommID(e.ID), Message: mad.StageREP, ServiceTimeout: 24}
	g.Receive(g.now, path, mra.AppendTo(nil))
	g.sleep(partWait)
	if s := g.Stats(); s.Connections != 0 || s.HalfOpen != 0 {
		t.Errorf("it stays: %+v", s)
	}
}
