package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

var groupAddr = netip.MustParseAddr("239.255.47.81")

// toGroup makes a datagram for a group.
func (s *side) toGroup(group netip.Addr, id uint64, n int) verbs.SendWR {
	s.t.Helper()
	ah, err := s.pd.CreateAH(verbs.AddressVector{DGID: group, HopLimit: 5, TrafficClass: 0x20})
	check(s.t, err)
	return verbs.SendWR{ID: id, Opcode: verbs.OpSend, SGList: []verbs.SGE{s.mr.Slice(0, n)}, Signaled: true,
		AH: ah, RemoteQPN: verbs.MulticastQPN, RemoteQKey: testQKey}
}

// TestMulticast: over real sockets, on several shards, a datagram for a group
// comes once to each queue pair that is attached: of the own device, with
// Loopback too, and of others. All of it can be answered.
func TestMulticast(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]verbs.Config{"one": {}, "4 shards": {Shards: 4}, "looped": {Loopback: true}, "2 shards, looped": {Shards: 2, Loopback: true}} {
		t.Run(name, func(t *testing.T) { testMulticast(t, cfg) })
	}
}

func testMulticast(t *testing.T, cfg verbs.Config) {
	cfg.Port = freePort(t) // not to hear other tests
	a, b := loopbackSide(t, cfg, 1<<20), loopbackSide(t, cfg, 1<<20)
	type member struct {
		s  *side
		qp *verbs.QP
	}
	var members []member
	for range 6 {
		for _, s := range []*side{a, b} {
			q := s.newQP(verbs.QPConfig{Type: verbs.UD})
			place := 8192 + len(members)*8192 // of its own: nothing orders what shards do
			check(t, q.Init())
			check(t, q.PostRecv(verbs.RecvWR{ID: uint64(place), SGList: []verbs.SGE{s.mr.Slice(place, 4096)}}))
			check(t, q.Activate(testQKey))
			check(t, q.Attach(groupAddr))
			members = append(members, member{s, q})
		}
	}
	want := a.fill(3)[:1000]
	a.qp = members[0].qp
	check(t, a.qp.PostSend(a.toGroup(groupAddr, 1, len(want))))
	sent := false
	for _, s := range []*side{a, b} {
		var got []verbs.QPN
		for range 6 {
			wc := s.wait()
			if wc.ID == 1 {
				sent = true
				wc = s.wait()
			}
			buf := s.mr.Bytes()[wc.ID:]
			h, err := verbs.ParseGRH(buf)
			check(t, err)
			if wc.Status != verbs.StatusSuccess || wc.SrcQPN != a.qp.QPN() || !slices.Equal(buf[verbs.GRHLen:wc.ByteLen], want) {
				t.Errorf("%+v", wc)
			}
			if h.Src != a.dev.Addr() || h.Dst != groupAddr || h.HopLimit != 5 || h.TrafficClass != 0x20 {
				t.Errorf("header %+v", h)
			}
			got = append(got, wc.QPN)
			back, err := s.pd.AHFromWC(wc, buf)
			check(t, err)
			if av := back.Query(); av.DGID != a.dev.Addr() {
				t.Errorf("answers go to %+v", av)
			}
		}
		for _, m := range members {
			if m.s == s && !slices.Contains(got, m.qp.QPN()) {
				t.Errorf("%v has nothing", m.qp.QPN())
			}
		}
	}
	if !sent {
		a.waitOK(1)
	}
	if g := a.dev.Groups(); !slices.Equal(g, []verbs.Group{{Addr: groupAddr, QPs: 6}}) {
		t.Errorf("groups %+v", g)
	}
	// A second copy would be dropped for want of a receive.
	for _, m := range members {
		if s := m.qp.Stats(); s.RecvDone != 1 || s.Drops.RNR != 0 {
			t.Errorf("%v: %d received, %+v", m.qp.QPN(), s.RecvDone, s.Drops)
		}
		check(t, m.qp.Detach(groupAddr))
	}
	if g := a.dev.Groups(); len(g) != 0 {
		t.Errorf("groups %+v", g)
	}
}

// freePort returns a free UDP port on 127.0.0.1.
func freePort(t *testing.T) uint16 {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(t, err)
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

// TestMulticastMisuse: what cannot be attached is refused by name.
func TestMulticastMisuse(t *testing.T) {
	t.Parallel()
	a, _ := newDatagramPair(t, verbs.Config{})
	rc := a.newQP(verbs.QPConfig{})
	if err := rc.Attach(groupAddr); !errors.Is(err, verbs.ErrNotUD) {
		t.Errorf("RC: %v", err)
	}
	for _, bad := range []netip.Addr{addrB, {}, netip.MustParseAddr("ff0e::1")} {
		if err := a.qp.Attach(bad); !errors.Is(err, verbs.ErrNotGroup) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if err := a.qp.Detach(groupAddr); !errors.Is(err, verbs.ErrNotAttached) {
		t.Errorf("detach: %v", err)
	}
	check(t, a.qp.Attach(netip.MustParseAddr("::ffff:239.255.47.81")))
	check(t, a.qp.Attach(groupAddr))
	if g := a.dev.Groups(); len(g) != 1 || g[0].QPs != 1 {
		t.Errorf("groups %+v", g)
	}
	check(t, a.qp.Close())
	if err := a.qp.Attach(groupAddr); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if g := a.dev.Groups(); len(g) != 0 {
		t.Errorf("groups %+v", g)
	}
	if d := a.dev.Query(); d.MaxGroup == 0 || d.MaxAttach < d.MaxGroup {
		t.Errorf("limits %+v", d)
	}
}

// Two devices, of which one sends to a group that the other is in.
func ExampleQP_Attach() {
	linkA, linkB := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	devA, a, _ := open(linkA, "to everybody")
	devB, b, _ := open(linkB, "")
	defer devA.Close()
	defer devB.Close()
	const qkey = 0x11111111
	group := netip.MustParseAddr("239.1.2.3")

	member, err := b.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: b.cq, RecvCQ: b.cq})
	must(err)
	must(member.Activate(qkey))
	must(member.PostRecv(verbs.RecvWR{ID: 1, SGList: []verbs.SGE{b.mr.Slice(0, 4096)}}))
	must(member.Attach(group))

	sender, err := a.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: a.cq, RecvCQ: a.cq})
	must(err)
	must(sender.Activate(qkey))
	ah, err := a.pd.CreateAH(verbs.AddressVector{DGID: group})
	must(err)
	must(sender.PostSend(verbs.SendWR{Opcode: verbs.OpSend, SGList: []verbs.SGE{a.mr.Slice(0, 12)},
		AH: ah, RemoteQPN: verbs.MulticastQPN, RemoteQKey: qkey}))

	var wc [1]verbs.WC
	_, err = b.cq.Wait(context.Background(), wc[:])
	must(err)
	h, err := verbs.ParseGRH(b.mr.Bytes())
	must(err)
	fmt.Printf("%v sends %q to %v\n", h.Src, b.mr.Bytes()[verbs.GRHLen:wc[0].ByteLen], h.Dst)
	// Output: 192.0.2.1 sends "to everybody" to 239.1.2.3
}
