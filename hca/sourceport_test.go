package hca

import (
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// ownPort is a link that sends from its own port only.
type ownPort struct{ transport.Link }

func (l ownPort) Capabilities() transport.Capabilities {
	c := l.Link.Capabilities()
	c.SourcePorts = false
	return c
}

// connectAV is connect with a given address vector.
func (h *host) connectAV(q *QP, av ib.AddressVector, qpn rocev2.QPN) error {
	h.t.Helper()
	h.must(q.Modify(&ib.Attr{State: ib.StateInit, Port: 1, Access: ib.RemoteWrite},
		ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccess))
	if err := q.Modify(&ib.Attr{State: ib.StateRTR, AV: av, PathMTU: rocev2.MTU1024, DestQPN: qpn, MaxDestRdAtomic: 4},
		ib.AttrState|ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN|ib.AttrMaxDestRdAtomic|ib.AttrMinRNRTimer); err != nil {
		return err
	}
	return q.Modify(&ib.Attr{State: ib.StateRTS, Timeout: 14, RetryCount: 7, RNRRetry: 7, MaxRdAtomic: 4},
		ib.AttrState|ib.AttrTimeout|ib.AttrRetryCount|ib.AttrRNRRetry|ib.AttrSQPSN|ib.AttrMaxRdAtomic)
}

// isWide says whether q has the wide window.
func (q *QP) isWide() bool {
	q.shard.lock()
	defer q.shard.unlock()
	return q.core.Peer().Wide
}

// The port that Linux sends from. The first one is of a capture. A flow label
// has 20 bits (RFC 6437 2), and the port is of the dynamic range (RFC 6335 6).
func TestFlowPort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		label uint32
		a, b  rocev2.QPN
		want  uint16
	}{
		{0, 17, 17, 49441},
		{0, 1, 0xfff, 0xc000 | 0xfff},
		{0, 0x10000, 0x10000, 0xd000},   // 2^32: the bits above the label count
		{0, 0x800000, 0x800000, 0xc040}, // 2^46
		{1, 17, 17, 0xc001},
		{0x4000, 17, 17, 0xc001},  // the upper six bits of a label are folded in
		{0xfffff, 17, 17, 0xffc0}, // 0x3fff ^ 0x3f
		{0x100000, 17, 17, 49441}, // no label: it has 20 bits
	} {
		if got := flowPort(c.label, c.a, c.b); got != c.want {
			t.Errorf("label %#x, QPNs %v and %v: port %#x, want %#x", c.label, c.a, c.b, got, c.want)
		}
		if x, y := flowPort(c.label, c.a, c.b), flowPort(c.label, c.b, c.a); x != y {
			t.Errorf("the ends differ: %#x and %#x", x, y)
		}
	}
}

// An address vector may name a source port of the dynamic range (RFC 6335 6).
func TestSourcePortOfAddressVector(t *testing.T) {
	t.Parallel()
	a, b := newHosts(t, Config{})
	for _, c := range []struct {
		port, want uint16
		err        string
	}{
		{0, 0, ""},
		{49152, 49152, ""},
		{65535, 65535, ""},
		{49151, 0, "the source port is neither 0 nor from 49152 to 65535"},
		{2, 0, "the source port is neither"},
		{rocev2.UDPPort, 0, "the source port is neither"},
	} {
		q := a.newQP()
		err := a.connectAV(q, ib.AddressVector{DGID: testAddrB, SrcPort: c.port}, 99)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("port %d: %v", c.port, err)
			}
			continue
		}
		if got := q.Attr().AV.SrcPort; err != nil || got != c.want {
			t.Errorf("port %d: %d, %v", c.port, got, err)
		}
	}
	q, peer := a.newQP(), b.newQP()
	a.must(a.connectAV(q, ib.AddressVector{DGID: testAddrB, SrcPort: AutoSourcePort}, peer.QPN()))
	if got, want := q.Attr().AV.SrcPort, flowPort(0, q.QPN(), peer.QPN()); got != want {
		t.Errorf("automatic: %d, want %d", got, want)
	}
	// The label counts more, and the peer's number need not be given again.
	a.must(q.Modify(&ib.Attr{State: ib.StateSQD}, ib.AttrState))
	a.must(q.Modify(&ib.Attr{State: ib.StateSQD, AV: ib.AddressVector{DGID: testAddrB, SrcPort: AutoSourcePort}}, ib.AttrState|ib.AttrAV))
	if got, want := q.Attr().AV.SrcPort, flowPort(0, q.QPN(), peer.QPN()); got != want {
		t.Errorf("automatic, later: %d, want %d", got, want)
	}
	a.must(q.Modify(&ib.Attr{State: ib.StateSQD, AV: ib.AddressVector{DGID: testAddrB, SrcPort: AutoSourcePort, FlowLabel: 5}}, ib.AttrState|ib.AttrAV))
	if got := q.Attr().AV.SrcPort; got != 0xc005 {
		t.Errorf("with a label: %#x", got)
	}
}

// A link that has no source ports says so when one is asked for.
func TestLinkWithoutSourcePorts(t *testing.T) {
	t.Parallel()
	la, _ := fabric.Pair(testAddrA, testAddrB)
	h := &host{t: t, dev: New(Config{}, ownPort{la})}
	h.equip()
	for _, port := range []uint16{50000, AutoSourcePort} {
		q := h.newQP()
		if err := h.connectAV(q, ib.AddressVector{DGID: testAddrB, SrcPort: port}, 99); err == nil || !strings.Contains(err.Error(), "sends from port 4791 only") {
			t.Errorf("port %d: %v", port, err)
		}
		if q.Attr().AV.SrcPort != 0 {
			t.Error("the attribute was changed all the same")
		}
	}
}

// Peers that send from ports of their own do not recognise each other; they
// have the wide window when they are told, from the start.
func TestNativeWithSourcePorts(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		a, b := newHosts(t, Config{})
		qa, qb := a.newQP(), b.newQP()
		a.must(a.connectAV(qa, ib.AddressVector{DGID: testAddrB, SrcPort: AutoSourcePort, Native: told}, qb.QPN()))
		b.must(b.connectAV(qb, ib.AddressVector{DGID: testAddrA, SrcPort: AutoSourcePort, Native: told}, qa.QPN()))
		a.write(qa, b, 8)
		a.waitOK(1)
		if qa.isWide() != told || qb.isWide() != told {
			t.Errorf("told %v: wide windows are %v and %v", told, qa.isWide(), qb.isWide())
		}
	}
	// A port on one side is seen by the other one only.
	a, b := newHosts(t, Config{})
	qa, qb := a.newQP(), b.newQP()
	a.must(a.connectAV(qa, ib.AddressVector{DGID: testAddrB, SrcPort: 50000}, qb.QPN()))
	b.must(b.connectAV(qb, ib.AddressVector{DGID: testAddrA}, qa.QPN()))
	a.write(qa, b, 8)
	a.waitOK(1)
	if !qa.isWide() || qb.isWide() {
		t.Errorf("wide windows are %v at the side with a port and %v at the other", qa.isWide(), qb.isWide())
	}
}
