package verbs_test

import (
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// What was asked for, or taken by default, can be asked back.
func TestQueries(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 4096, verbs.WithMTU(verbs.MTU1024))
	if d := a.dev.Query(); d.MaxQP == 0 || d.NodeGUID == 0 || d.NodeGUID == b.dev.Query().NodeGUID {
		t.Errorf("device %+v", d)
	}
	if p := a.dev.QueryPort(); p.State != verbs.PortActive || p.ActiveMTU != verbs.MTU4096 || p.State.String() != "PORT_ACTIVE" {
		t.Errorf("port %+v", p)
	}
	if g := a.dev.GIDs(); len(g) != 1 || g[0].Addr != addrA || g[0].Bytes() != [16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: 1} {
		t.Errorf("GIDs %v", g)
	}
	attr := a.qp.Query()
	if attr.State != verbs.StateRTS || attr.DestQPN != b.qp.QPN() || attr.PathMTU != verbs.MTU1024 || attr.AV.DGID != addrB ||
		attr.RetryCount != 7 || attr.SQPSN != a.qp.Endpoint().PSN {
		t.Errorf("queue pair %+v", attr)
	}
	if c := a.qp.Config(); c.MaxSendWR != 64 || c.MaxSendSGE != 4 || c.MaxInline != 64 || c.SendCQ != a.cq {
		t.Errorf("made for %+v", c)
	}
	if a.mr.Access() != allAccess || a.mr.Len() != 4096 || a.mr.LKey() == a.mr.RKey() || a.mr.Remote().Length != 4096 {
		t.Errorf("region: %v, %d bytes, keys %v and %v", a.mr.Access(), a.mr.Len(), a.mr.LKey(), a.mr.RKey())
	}
}
