package engine

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

var testGroup, otherGroup = netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("ff0e::1:2")

// member makes a UD queue pair in a state, with receives posted, each of the
// whole region.
func (h *host) member(qkey uint32, state ib.State, receives int) *QP {
	h.w.t.Helper()
	q, err := h.e.CreateQP(qp.Config{Type: ib.UD, PD: h.pd, SendCQ: h, RecvCQ: h, MaxSendWR: 1, MaxRecvWR: max(receives, 1), PortMTU: rocev2.MTU1024}, nil)
	h.w.must(err)
	h.modify(q, ib.Attr{State: ib.StateInit, Port: 1, QKey: qkey}, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrQKey)
	for range receives {
		_, err := h.e.PostRecv(q, []ib.RecvWR{{SGList: []ib.SGE{h.mr.SGE(0, uint32(len(h.mem)))}}})
		h.w.must(err)
	}
	switch state {
	case ib.StateRTR:
		h.modify(q, ib.Attr{State: state}, ib.AttrState)
	case ib.StateErr:
		h.modify(q, ib.Attr{State: ib.StateRTR}, ib.AttrState)
		h.modify(q, ib.Attr{State: state}, ib.AttrState)
	}
	return q
}

// toGroup makes a datagram for a group, with a right ICRC.
func toGroup(group netip.Addr, change ...func(*rocev2.Packet)) transport.RxPacket {
	p := rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: rocev2.UDSendOnly, PKey: rocev2.DefaultPKey, DestQPN: rocev2.MulticastQPN},
		DETH:    rocev2.DETH{QKey: victimQKey, SrcQPN: 0x99},
		Payload: []byte("to everybody"),
	}
	for _, f := range change {
		f(&p)
	}
	return transport.RxPacket{Data: append(p.AppendTo(nil), 0, 0, 0, 0), Src: addrOf(77), Dst: group, SrcPort: rocev2.UDPPort, ICRC: transport.ICRCWeak}
}

// receivers returns whose receives have completed, and forgets it.
func (h *host) receivers() (qpns []rocev2.QPN) {
	h.w.t.Helper()
	for _, wc := range h.done {
		if wc.Status != ib.StatusSuccess || wc.ByteLen != rocev2.GRHLen+12 || wc.SrcQPN != 0x99 || !wc.WithGRH {
			h.w.t.Errorf("completion %+v", wc)
		}
		qpns = append(qpns, wc.QPN)
	}
	h.done = nil
	return qpns
}

// TestGroupDelivery: a datagram for a group is handed to every queue pair that
// is attached, in the order in which they were (IBTA 10.5.2). Each drops for
// itself what its state, Q_Key or receives do not take.
func TestGroupDelivery(t *testing.T) {
	t.Parallel()
	h := newWorld(t, 1).newHost(Config{}, 1<<12)
	first, second := h.member(victimQKey, ib.StateRTR, 8), h.member(victimQKey, ib.StateRTR, 8)
	for _, q := range []*QP{
		first,
		h.member(victimQKey+1, ib.StateRTR, 8),
		h.member(victimQKey, ib.StateInit, 8),
		h.member(victimQKey, ib.StateErr, 0),
		h.member(victimQKey, ib.StateRTR, 0),
		second,
	} {
		if !h.e.Attach(q, testGroup) {
			t.Fatal("not attached")
		}
	}
	h.e.Attach(h.member(victimQKey, ib.StateRTR, 8), otherGroup)
	h.member(victimQKey, ib.StateRTR, 8) // in no group
	h.receivers()
	take := func(want ...*QP) {
		t.Helper()
		h.e.Receive(h.w.now, []transport.RxPacket{toGroup(testGroup)})
		var qpns []rocev2.QPN
		for _, q := range want {
			qpns = append(qpns, q.QPN())
		}
		if got := h.receivers(); !slices.Equal(got, qpns) {
			t.Errorf("delivered to %v, want %v", got, qpns)
		}
	}
	take(first, second)
	if c := h.e.Counters(); c.QP[qp.DropQKey] != 1 || c.QP[qp.DropState] != 2 || c.QP[qp.DropRNR] != 1 || c.Device[DropGroup] != 0 {
		t.Errorf("%+v", c)
	}
	if string(h.mem[rocev2.GRHLen:][:12]) != "to everybody" {
		t.Errorf("data %q", h.mem[:64])
	}
	var grh rocev2.GRH
	if err := grh.Parse(h.mem); err != nil || grh.Dst != testGroup || grh.Src != addrOf(77) {
		t.Errorf("header %+v, %v", grh, err)
	}

	if h.e.Attach(first, testGroup) {
		t.Error("attached twice")
	}
	take(first, second) // once each
	if !h.e.Detach(first, testGroup) || h.e.Detach(first, testGroup) || h.e.Detach(first, otherGroup) {
		t.Error("detached what is not attached")
	}
	take(second)
	h.e.Attach(first, testGroup)
	take(second, first)
	h.e.Destroy(second)
	take(first)
	if n := h.e.Attached(testGroup); n != 5 {
		t.Errorf("%d are attached", n)
	}
}

// TestGroupForgery: what is not a datagram for a group with members changes
// nothing: one datagram with opcode 0xff for the multicast QPN ended other
// stacks.
func TestGroupForgery(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	h := w.newHost(Config{}, 1<<12)
	connected := h.newQP()
	h.connect(connected, ib.AddressVector{DGID: addrOf(77)}, 5)
	q := h.member(victimQKey, ib.StateRTR, 8)
	h.e.Attach(q, testGroup)
	opcode := func(op rocev2.Opcode) func(*rocev2.Packet) {
		return func(p *rocev2.Packet) { p.BTH.Opcode = op }
	}
	for name, c := range map[string]struct {
		d    transport.RxPacket
		drop DeviceDrop
	}{
		"other group":                        {toGroup(otherGroup), DropGroup},
		"host's address":                     {toGroup(h.addr), DropGroup},
		"no address":                         {toGroup(netip.Addr{}), DropGroup},
		"UD queue pair through the group":    {toGroup(testGroup, func(p *rocev2.Packet) { p.BTH.DestQPN = q.QPN() }), DropGroup},
		"RC queue pair through the group":    {toGroup(testGroup, opcode(rocev2.RCSendOnly), func(p *rocev2.Packet) { p.BTH.DestQPN = connected.QPN() }), DropGroup},
		"other queue pair through the group": {toGroup(testGroup, func(p *rocev2.Packet) { p.BTH.DestQPN = 3 }), DropGroup},
	} {
		before := *h.e.Counters()
		h.e.Receive(w.now, []transport.RxPacket{c.d})
		if n := h.e.Counters().Device[c.drop] - before.Device[c.drop]; n != 1 || len(h.done) > 0 {
			t.Errorf("%s: dropped %d for %v, completions %v", name, n, c.drop, h.done)
		}
	}
	for op := range 256 { // of other services too
		if op == int(rocev2.UDSendOnly) || op == int(rocev2.UDSendOnlyImm) {
			continue
		}
		d := toGroup(testGroup)
		d.Data[0] = byte(op)
		h.e.Receive(w.now, []transport.RxPacket{d})
	}
	whole := toGroup(testGroup)
	for n := range whole.Data {
		for _, pad := range []byte{0, 3} {
			d := whole
			d.Data = slices.Clone(whole.Data[:n])
			if n > 1 {
				d.Data[1] |= pad << 4
			}
			if n >= 24 && n%4 == 0 && (pad == 0 || n > 24) {
				continue // a shorter datagram, which is whole
			}
			h.e.Receive(w.now, []transport.RxPacket{d})
		}
	}
	bad := whole
	bad.ICRC = transport.ICRCBad
	h.e.Receive(w.now, []transport.RxPacket{bad})
	if len(h.done) > 0 || q.Core().State() != ib.StateRTR || connected.Core().State() != ib.StateRTS || h.e.Pending() {
		t.Fatalf("completions %+v, states %v and %v", h.done, q.Core().State(), connected.Core().State())
	}
	h.e.Receive(w.now, []transport.RxPacket{whole})
	if got := h.receivers(); len(got) != 1 {
		t.Errorf("%d have a datagram afterwards", len(got))
	}
}

// TestGroupOfShards: with several shards a packet for a group is handed to the
// queue pairs of this one, and returned for the others.
func TestGroupOfShards(t *testing.T) {
	t.Parallel()
	h := newWorld(t, 1).newHost(Config{Shard: 1, Shards: 4}, 1<<12)
	q := h.member(victimQKey, ib.StateRTR, 8)
	h.e.Attach(q, testGroup)
	bad := toGroup(testGroup)
	bad.ICRC = transport.ICRCBad
	r := h.e.Receive(h.w.now, []transport.RxPacket{toGroup(testGroup), bad, toGroup(otherGroup)})
	if len(r.Multicast) != 2 || r.Multicast[0].Dst != testGroup || r.Multicast[1].Dst != otherGroup || len(r.Misrouted) != 0 {
		t.Errorf("%+v", r)
	}
	if n := len(h.receivers()); n != 1 || h.e.Counters().Device[DropGroup] != 0 {
		t.Errorf("%d receives, %+v", n, h.e.Counters())
	}
	if r := h.e.Receive(h.w.now, nil); len(r.Multicast) != 0 {
		t.Errorf("again: %+v", r)
	}
}

func TestGroupNoAllocations(t *testing.T) {
	h := newWorld(t, 1).newHost(Config{Shards: 2}, 1<<12)
	for range 4 {
		h.e.Attach(h.member(victimQKey, ib.StateRTR, 1000), testGroup)
	}
	h.done = make([]ib.WC, 0, 4096)
	d := []transport.RxPacket{toGroup(testGroup)}
	if n := testing.AllocsPerRun(200, func() { h.e.Receive(h.w.now, d) }); n != 0 {
		t.Errorf("%v allocations for a datagram", n)
	}
	if len(h.done) != 4*201 {
		t.Errorf("%d completions", len(h.done))
	}
}

// FuzzGroups attaches, detaches and destroys queue pairs while datagrams for
// groups arrive. A simple model says which queue pairs get each one.
func FuzzGroups(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 0x40, 0x41, 0xc0, 0x80, 0xc0, 0x20, 0xc0, 0x60, 0xa0, 0xc0})
	f.Add([]byte{0, 0, 0xc0, 0x40, 0x40, 0xc0, 1, 0xc1, 0x31, 0xc1, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		const qps, receives = 8, 16
		h := newWorld(t, 1).newHost(Config{}, 1<<10)
		groups := [4]netip.Addr{testGroup, otherGroup, netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr("ff02::1")}
		var all [qps]*QP
		var model [4][]rocev2.QPN
		renew := func(i int) { all[i] = h.member(victimQKey, ib.StateRTR, receives) }
		for i := range all {
			renew(i)
		}
		for _, b := range in {
			i, g := int(b)>>2%qps, int(b)%4
			q := all[i]
			at := slices.Index(model[g], q.QPN())
			switch b >> 6 {
			case 0:
				if h.e.Attach(q, groups[g]) != (at < 0) {
					t.Fatal("attach says otherwise")
				}
				if at < 0 {
					model[g] = append(model[g], q.QPN())
				}
			case 1:
				if h.e.Detach(q, groups[g]) != (at >= 0) {
					t.Fatal("detach says otherwise")
				}
				if at >= 0 {
					model[g] = slices.Delete(model[g], at, at+1)
				}
			case 2:
				h.e.Destroy(q)
				for k := range model {
					model[k] = slices.DeleteFunc(model[k], func(n rocev2.QPN) bool { return n == q.QPN() })
				}
				renew(i)
			default:
				h.done = nil
				h.e.Receive(h.w.now, []transport.RxPacket{toGroup(groups[g])})
				for _, n := range h.receivers() {
					if !slices.Contains(model[g], n) {
						t.Fatalf("%v is not in group %d", n, g)
					}
				}
				for _, n := range model[g] { // and they have receives again
					_, err := h.e.PostRecv(h.e.Lookup(n), []ib.RecvWR{{SGList: []ib.SGE{h.mr.SGE(0, 256)}}})
					if err != nil {
						t.Fatalf("%v has not received: %v", n, err)
					}
				}
			}
			for k, addr := range groups {
				if h.e.Attached(addr) != len(model[k]) {
					t.Fatalf("%d in group %d, want %d", h.e.Attached(addr), k, len(model[k]))
				}
			}
		}
		for _, q := range all {
			h.e.Destroy(q)
		}
		if len(h.e.in.groups.members)+len(h.e.in.groups.of) != 0 {
			t.Errorf("left are %v", h.e.in.groups)
		}
	})
}
