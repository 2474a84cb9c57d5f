package verbs_test

import (
	"io"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/fault"
	"github.com/gosoftroce/rocev2/transport/tap"
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
	// The GID of an IPv4 address is the IPv4-mapped IPv6 address (RFC 4291
	// 2.5.5.2, IBTA A17).
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

// portLink is a link that says how its port is.
type portLink struct {
	verbs.Link
	status transport.PortStatus
}

func (l *portLink) PortStatus() transport.PortStatus { return l.status }

// The state of the port is that of the link below, as it is now, through
// wrappers too.
func TestPortState(t *testing.T) {
	t.Parallel()
	la, lb := fabric.Pair(addrA, addrB)
	defer lb.Close()
	port := &portLink{Link: la}
	tapped, err := tap.New(fault.New(port, 1), io.Discard)
	check(t, err)
	dev, err := verbs.OpenLink(tapped, verbs.Config{})
	check(t, err)
	defer dev.Close()
	for _, c := range []struct {
		status transport.PortStatus
		state  string
		phys   string
		reason string
	}{
		{transport.PortStatus{Interface: "eth0", Speed: 25000}, "PORT_ACTIVE", "LINK_UP", ""},
		{transport.PortStatus{State: transport.PortNoCarrier, Interface: "eth0"}, "PORT_DOWN", "POLLING", "interface eth0 has no carrier"},
		{transport.PortStatus{State: transport.PortDisabled, Interface: "eth0"}, "PORT_DOWN", "DISABLED", "interface eth0 is down"},
		{transport.PortStatus{State: transport.PortNoAddress}, "PORT_DOWN", "DISABLED", "no interface has the address 192.0.2.1 any more"},
	} {
		port.status = c.status
		p := dev.QueryPort()
		if p.State.String() != c.state || p.PhysState.String() != c.phys || p.DownReason != c.reason ||
			p.Interface != c.status.Interface || p.Speed != c.status.Speed {
			t.Errorf("%+v: port %v, %v: %+v", c.status, p.State, p.PhysState, p)
		}
	}
}
