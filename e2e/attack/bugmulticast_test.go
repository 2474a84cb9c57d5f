package attack

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

var labGroup = netip.MustParseAddr("239.9.8.7")

// toGroup makes h send to the group.
func (h *hostile) toGroup() {
	h.path = transport.NewPath(h.link.Addr(), transport.Path{Dst: labGroup})
}

// groupDatagram makes a datagram for the group.
func groupDatagram(op rocev2.Opcode, qkey uint32) []byte {
	return encode(op, rocev2.MulticastQPN, 0, func(p *rocev2.Packet) {
		p.DETH, p.Payload = rocev2.DETH{QKey: qkey, SrcQPN: 0x99}, forged
	})
}

// A group was visible to what arrives before it was complete. Here datagrams
// come all the while, and queue pairs are attached, detached and closed: one
// that is attached takes each of them once, and one that is not takes none.
func TestMulticastGroupIsCompleteWhenVisible(t *testing.T) {
	bugClass(t, func(t *Trial) {
		h := t.lab.hostile(true)
		h.toGroup()
		d := groupDatagram(rocev2.UDSendOnly, labQKey)
		shoot := func() { check(h.send(d)); t.lab.fence() }
		ends := []*end{t.lab.service(nil, verbs.UD, madSlot), t.lab.service(nil, verbs.UD, madSlot), t.lab.service(nil, verbs.UD, madSlot)}
		want := make([]uint64, len(ends))
		in := make([]bool, len(ends))
		for round := range 24 {
			i := round * 7 % len(ends)
			switch e := ends[i]; {
			case !in[i] && e.qp.Stats().RecvDone < serviceReceives:
				check(h.send(d)) // under way
				check(e.qp.Attach(labGroup))
				check(e.qp.Attach(labGroup)) // again: nothing
				t.lab.fence()
				want[i], in[i] = e.qp.Stats().RecvDone, true // whether it came before
				for k := range ends {
					want[k] = ends[k].qp.Stats().RecvDone
				}
			case in[i]:
				check(e.qp.Detach(labGroup))
				in[i] = false
				t.must(errors.Is(e.qp.Detach(labGroup), verbs.ErrNotAttached), "a queue pair was detached twice")
			}
			shoot()
			for k, e := range ends {
				if in[k] {
					want[k] = min(want[k]+1, serviceReceives)
				}
				t.must(e.qp.Stats().RecvDone == want[k], "round %d: queue pair %d has taken %d datagrams, not %d", round, k, e.qp.Stats().RecvDone, want[k])
			}
			attached := 0
			for _, yes := range in {
				if yes {
					attached++
				}
			}
			g := t.lab.victim.dev.Groups()
			t.must(attached == 0 && len(g) == 0 || len(g) == 1 && g[0].QPs == attached, "%d queue pairs are attached, the device says %v", attached, g)
		}
		for _, e := range ends {
			check(e.qp.Close())
		}
		t.must(len(t.lab.victim.dev.Groups()) == 0, "closed queue pairs are attached to %v", t.lab.victim.dev.Groups())
		shoot()
	})
}

// An attachment that fails leaves no group.
func TestFailedAttachLeavesNothing(t *testing.T) {
	bugClass(t, func(t *Trial) {
		closed := t.lab.service(nil, verbs.UD, madSlot)
		check(closed.qp.Close())
		t.must(closed.qp.Attach(labGroup) != nil, "a closed queue pair was attached")
		for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.GSI} {
			e := t.lab.service(t.lab.hostile(true), typ, madSlot)
			t.must(errors.Is(e.qp.Attach(labGroup), verbs.ErrNotUD), "a queue pair of %v was attached", typ)
		}
		e := t.lab.service(nil, verbs.UD, madSlot)
		for _, a := range []netip.Addr{{}, t.lab.victim.addr, netip.MustParseAddr("ff02::1"), netip.MustParseAddr("255.255.255.255")} {
			t.must(errors.Is(e.qp.Attach(a), verbs.ErrNotGroup), "attached to %v", a)
		}
		t.must(len(t.lab.victim.dev.Groups()) == 0, "groups %v", t.lab.victim.dev.Groups())
	})
}

// What is sent to a group reaches only queue pairs that are attached, of UD,
// and with the right Q_Key; packets for one queue pair that are sent to a group
// reach none; nothing is answered.
func TestMulticastFloodHasNoEffect(t *testing.T) {
	bugClass(t, func(t *Trial) {
		h := t.lab.hostile(false)
		targets := t.lab.targets(h)
		member := targets[2]
		check(member.qp.Attach(labGroup))
		before := bytes.Clone(member.mr.Bytes())
		h.toGroup()
		t.lab.fence()
		sent := t.lab.victim.dev.Stats().Link.TxPackets
		for op := range 256 {
			info, ok := rocev2.Opcode(op).Info()
			if !ok {
				continue
			}
			check(h.send(groupDatagram(rocev2.Opcode(op), labQKey^1)))
			for _, e := range targets { // right in everything but where it is sent to
				check(h.send(encode(rocev2.Opcode(op), e.qp.QPN(), e.expects(), func(p *rocev2.Packet) {
					p.DETH = rocev2.DETH{QKey: e.qp.Query().QKey, SrcQPN: 1}
					p.RETH = rocev2.RETH{VA: e.mr.Addr(), RKey: uint32(e.mr.RKey()), Length: slotSize}
					if info.Payload != rocev2.PayloadNone {
						p.Payload = forged
					}
				})))
			}
			t.lab.fence()
		}
		now := t.lab.victim.dev.Stats().Link.TxPackets
		t.must(now == sent, "answered with %d packets", now-sent)
		for _, e := range targets {
			t.must(e.qp.State() == verbs.StateRTS && e.qp.Stats().RecvDone == 0, "%v: state %v, %d messages",
				e.qp.Config().Type, e.qp.State(), e.qp.Stats().RecvDone)
		}
		t.must(bytes.Equal(before, member.mr.Bytes()), "memory has changed")
		check(h.send(groupDatagram(rocev2.UDSendOnly, labQKey)))
		wc, err := t.lab.wait(member.rcq)
		check(err)
		t.must(wc.ByteLen == verbs.GRHLen+slotSize, "the right one: %+v", wc)
	})
}
