package attack

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/verbs"
)

// The tests of this file are named after classes of bugs that were found in
// other RDMA stacks, in kernels and in adapters. Each attacks a live device
// with what set the bug off, in virtual time.

// bugClass runs one of them in a lab of its own.
func bugClass(t *testing.T, run func(*Trial)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := Attack{Name: t.Name(), run: run}
		r, err := a.Run(t.Context(), Options{Scale: Short, Network: Fabric(fabric.Config{
			Port: fabric.PortConfig{Rate: 10e9, Delay: 5 * time.Microsecond},
		})})
		report(t, r, err)
	})
}

// sealed returns a datagram with a right ICRC, if it is long enough for one.
func (t *Trial) sealed(src netip.Addr, b []byte) []byte {
	if len(b) < rocev2.BTHLen {
		return append(b, 0, 0, 0, 0)[:len(b)]
	}
	flow := rocev2.NewFlow(src, t.lab.victim.addr, rocev2.UDPPort, rocev2.UDPPort)
	return flow.Seal(0, b)
}

// unharmed notes what a datagram that belongs to no connection has changed: the
// memory, the answers, or what the queue pair expects.
func (t *Trial) unharmed(e *end, what string, attack func()) {
	t.lab.fence()
	mem, psn, sent := bytes.Clone(e.mr.Bytes()), e.expects(), t.lab.victim.dev.Stats().Link.TxPackets
	attack()
	t.lab.fence()
	t.must(e.qp.State() == verbs.StateRTS, "%s: the queue pair is in state %v", what, e.qp.State())
	t.must(bytes.Equal(mem, e.mr.Bytes()), "%s: memory has changed", what)
	t.must(e.expects() == psn, "%s: the queue pair expects another PSN", what)
	now := t.lab.victim.dev.Stats().Link.TxPackets
	t.must(now == sent, "%s: answered with %d packets", what, now-sent)
}

// A packet that is shorter than its headers, pad and ICRC: the length of its
// payload underflowed where it was computed before it was checked.
func TestShortPacketPadUnderflow(t *testing.T) {
	bugClass(t, func(t *Trial) {
		h := t.lab.hostile(true)
		for _, e := range t.lab.targets(h) {
			for op := range 256 {
				if info, ok := rocev2.Opcode(op).Info(); ok {
					what := fmt.Sprintf("%s at %v", info.Name, e.qp.Config().Type)
					t.unharmed(e, what, func() { t.shortened(h.link.Addr(), e, rocev2.Opcode(op)) })
				}
			}
		}
		drops := t.lab.victim.dev.Stats().Drops
		t.must(drops["short_packet"] > 0 && drops["wrong_pad"] > 0, "drops %v: the datagrams did not arrive", drops)
	})
}

// shortened sends what is no packet any more, of every length and pad.
func (t *Trial) shortened(src netip.Addr, e *end, op rocev2.Opcode) {
	full := encode(op, e.qp.QPN(), e.expects(), func(p *rocev2.Packet) {
		p.RETH = rocev2.RETH{VA: e.mr.Addr(), RKey: uint32(e.mr.RKey()), Length: 64}
		p.DETH.QKey = e.qp.Query().QKey
	})
	for n := range len(full) + 3 {
		for pad := range byte(4) {
			b := append(bytes.Clone(full), 0, 0, 0)[:n]
			if n >= len(full) && int(pad) <= n-len(full) {
				continue // a packet
			}
			if n > 1 {
				b[1] = b[1]&^0x30 | pad<<4
			}
			t.lab.datagram(netip.AddrPortFrom(src, rocev2.UDPPort), t.sealed(src, b))
			t.result.Sent++
		}
	}
}

// An opcode that is not in the table indexed past its end: one datagram from
// any host, opcode 0xff, to the multicast QPN.
func TestUnknownOpcode(t *testing.T) {
	bugClass(t, func(t *Trial) {
		h := t.lab.hostile(true)
		targets := t.lab.targets(h)
		to := []verbs.QPN{rocev2.MulticastQPN, 0, 1, 2}
		for _, e := range targets {
			to = append(to, e.qp.QPN())
		}
		unknown := uint64(0)
		for op := range 256 {
			o := rocev2.Opcode(op)
			if _, ok := o.Info(); ok {
				continue
			}
			unknown++
			t.unharmed(targets[int(unknown)%len(targets)], o.String(), func() {
				for _, qpn := range to {
					for _, src := range []netip.Addr{h.link.Addr(), t.lab.ghost} {
						bth := rocev2.BTH{Opcode: o, PKey: rocev2.DefaultPKey, DestQPN: qpn, PSN: targets[0].expects(), AckReq: true}
						for _, more := range []int{0, 4, 16, 64} {
							t.lab.forge(src, rocev2.UDPPort, append(bth.AppendTo(nil), make([]byte, more)...))
							t.result.Sent++
						}
					}
				}
			})
		}
		drops := t.lab.victim.dev.Stats().Drops["unknown_opcode"]
		t.must(unknown > 100 && drops == t.result.Sent, "%d datagrams of %d unknown opcodes, %d were dropped as such",
			t.result.Sent, unknown, drops)
	})
}

// An ATOMIC WRITE without its 8 bytes read them from past the end of the
// packet; so did its repetition.
func TestZeroLengthAtomicWrite(t *testing.T) {
	bugClass(t, func(t *Trial) {
		for _, n := range []int{0, 4, 7, 12, 16} {
			f := t.lab.foe(t.lab.hostile(false), endConfig{})
			before := bytes.Clone(f.end.mr.Bytes())
			packet := f.packet(rocev2.RCAtomicWrite, 0, func(p *rocev2.Packet) {
				p.RETH = rocev2.RETH{VA: f.end.mr.Addr(), RKey: uint32(f.end.mr.RKey()), Length: 8}
				p.Payload = forged[:n]
			})
			check(f.send(packet))
			t.lab.fence()
			check(f.send(packet, packet))
			t.lab.fence()
			t.must(bytes.Equal(before, f.end.mr.Bytes()), "%d bytes: memory has changed", n)
			t.must(f.end.qp.State() == verbs.StateErr, "%d bytes: the queue pair is in state %v", n, f.end.qp.State())
			t.must(f.end.qp.Stats().NAKInvalidSent > 0, "%d bytes: no NAK, invalid request", n)
		}
	})
}

// wraps are ranges that end inside of a region where the sum of address and
// length is computed in 64 bits, or lie around it.
func wraps(mr *verbs.MR) []rocev2.RETH {
	key, at, size := uint32(mr.RKey()), mr.Addr(), uint64(mr.Len())
	return []rocev2.RETH{
		{VA: math.MaxUint64 - 63, RKey: key, Length: 64},
		{VA: math.MaxUint64 - 62, RKey: key, Length: 64}, // ends at 1
		{VA: math.MaxUint64, RKey: key, Length: 1 << 31},
		{VA: at - 64, RKey: key, Length: 128},
		{VA: at - 1, RKey: key, Length: 1},
		{VA: at + size, RKey: key, Length: 1},
		{VA: at + size - 1, RKey: key, Length: 2},
		{VA: at + 64, RKey: key, Length: 1 << 31},
		{VA: at - 1<<31 + 64, RKey: key, Length: 1 << 31},
		{VA: at ^ 1<<63, RKey: key, Length: 64},
	}
}

// The sum of address and length wrapped around in the checks of regions, of
// windows, and of READs that are answered again.
func TestAddressPlusLengthWraps(t *testing.T) {
	bugClass(t, func(t *Trial) {
		for _, op := range []rocev2.Opcode{rocev2.RCReadRequest, rocev2.RCWriteOnly, rocev2.RCWriteFirst, rocev2.RCFetchAdd, rocev2.RCCompareSwap} {
			h := t.lab.hostile(false)
			for i := range 10 {
				f := t.lab.foe(h, endConfig{})
				before := bytes.Clone(f.end.mr.Bytes())
				reth := wraps(f.end.mr)[i]
				answered := h.got().responses
				check(f.send(f.packet(op, 0, func(p *rocev2.Packet) {
					p.RETH = reth
					p.AtomicETH = rocev2.AtomicETH{VA: reth.VA &^ 7, RKey: reth.RKey, SwapAdd: 1}
					switch info, _ := op.Info(); info.Payload {
					case rocev2.PayloadMTU:
						p.Payload = bytes.Repeat([]byte{0xee}, f.end.mtu.Bytes())
					case rocev2.PayloadAny:
						p.Payload = forged[:min(reth.Length, slotSize)]
					}
				})))
				t.lab.fence()
				what := fmt.Sprintf("%v, %#x + %#x", op, reth.VA-f.end.mr.Addr(), reth.Length)
				aligned := reth.VA&^7-f.end.mr.Addr() < uint64(f.end.mr.Len()) // an atomic of 8 bytes inside
				if op.Service() == rocev2.ServiceRC && (op == rocev2.RCFetchAdd || op == rocev2.RCCompareSwap) && aligned {
					continue
				}
				t.must(f.end.qp.State() == verbs.StateErr, "%s: the queue pair is in state %v", what, f.end.qp.State())
				t.must(bytes.Equal(before, f.end.mr.Bytes()), "%s: memory has changed", what)
				t.must(h.got().responses == answered, "%s: answered with data", what)
			}
		}
	})
}

// A READ that is repeated with another range was answered without a check.
func TestDuplicateReadOutside(t *testing.T) {
	bugClass(t, func(t *Trial) {
		h := t.lab.hostile(false)
		f := t.lab.foe(h, endConfig{})
		check(f.send(f.packet(rocev2.RCReadRequest, 0, read(f.end.mr, 64))))
		t.lab.fence()
		t.must(h.got().responses == 1, "a READ of 64 bytes: %d responses", h.got().responses)
		for _, reth := range wraps(f.end.mr) {
			check(f.send(f.packet(rocev2.RCReadRequest, 0, func(p *rocev2.Packet) { p.RETH = reth })))
			t.lab.fence()
		}
		t.must(h.got().responses == 1, "READs outside of the region that repeat a PSN: %d responses with data", h.got().responses-1)
		t.must(f.end.qp.State() == verbs.StateRTS, "a duplicate has ended the connection")
	})
}

// A list of more entries than the queue has room for overran it.
func TestEntryCountBeyondTheList(t *testing.T) {
	bugClass(t, func(t *Trial) {
		e := t.lab.end(t.lab.victim, endConfig{})
		qp, err := t.lab.victim.pd.CreateQP(verbs.QPConfig{SendCQ: e.scq, RecvCQ: e.rcq, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 16})
		check(err)
		check(qp.Connect(t.lab.ctx, verbs.Endpoint{Addr: t.lab.peer.addr, QPN: 99}))
		for n := 3; n < 1<<16; n *= 3 {
			list := make([]verbs.SGE, n)
			for i := range list {
				list[i] = e.mr.Slice(i%1024, 1)
			}
			err := qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, SGList: list})
			t.must(errors.Is(err, verbs.ErrTooManySGE), "a SEND of %d entries: %v", n, err)
			err = qp.PostRecv(verbs.RecvWR{SGList: list})
			t.must(errors.Is(err, verbs.ErrTooManySGE), "a receive of %d entries: %v", n, err)
			err = qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: make([]byte, 16+n)})
			t.must(errors.Is(err, verbs.ErrInlineTooLong), "%d bytes inline: %v", 16+n, err)
		}
		t.must(qp.Stats().SendPosted+qp.Stats().RecvPosted == 0, "a request was queued that was refused")
	})
}

// What follows the packet that has ended the connection was executed all the
// same, and so was what is repeated.
func TestNotExecutedAfterError(t *testing.T) {
	bugClass(t, func(t *Trial) {
		f := t.lab.foe(t.lab.hostile(false), endConfig{})
		check(f.end.postReceives())
		before := bytes.Clone(f.end.mr.Bytes())
		write := func(p *rocev2.Packet) { read(f.end.mr, slotSize)(p); p.Payload = forged }
		add := func(p *rocev2.Packet) {
			p.AtomicETH = rocev2.AtomicETH{VA: f.end.mr.Addr(), RKey: uint32(f.end.mr.RKey()), SwapAdd: 1}
		}
		wrong := func(p *rocev2.Packet) { write(p); p.RETH.RKey ^= 1 }
		var rest [][]byte
		for psn := range 3 {
			rest = append(rest, f.packet(rocev2.RCWriteOnly, psn, write), f.packet(rocev2.RCFetchAdd, psn, add),
				f.packet(rocev2.RCSendOnly, psn, payload(forged)), f.packet(rocev2.RCReadRequest, psn, read(f.end.mr, 64)))
		}
		check(f.send(f.packet(rocev2.RCWriteOnly, 0, wrong)))
		check(f.send(rest...))
		t.lab.fence()
		t.must(f.end.qp.State() == verbs.StateErr, "the queue pair is in state %v", f.end.qp.State())
		check(f.send(rest...))
		t.lab.fence()
		t.must(bytes.Equal(before, f.end.mr.Bytes()), "memory has changed")
		t.must(f.end.qp.Stats().RecvDone == 0, "a message was received")
		t.must(f.got().responses == 0, "a READ or an atomic was answered")
	})
}

// The second invalidation of a key found no memory for it, and crashed.
func TestDoubleInvalidate(t *testing.T) {
	bugClass(t, func(t *Trial) {
		f := t.lab.foe(t.lab.hostile(false), endConfig{})
		check(f.end.postReceives())
		mr, err := t.lab.victim.pd.AllocMemory(4096, verbs.LocalWrite|verbs.RemoteWrite, verbs.Invalidatable())
		check(err)
		end := func(p *rocev2.Packet) { p.IETH.RKey, p.Payload = uint32(mr.RKey()), forged }
		check(f.send(f.packet(rocev2.RCSendOnlyInv, 0, end)))
		t.lab.fence()
		t.must(f.end.qp.State() == verbs.StateRTS && f.end.qp.Stats().RecvDone == 1, "the first: state %v, %d messages",
			f.end.qp.State(), f.end.qp.Stats().RecvDone)
		check(f.send(f.packet(rocev2.RCSendOnlyInv, 0, end))) // a duplicate is acknowledged
		t.lab.fence()
		t.must(f.end.qp.State() == verbs.StateRTS, "a duplicate: state %v", f.end.qp.State())
		check(f.send(f.packet(rocev2.RCSendOnlyInv, 1, end)))
		t.lab.fence()
		t.must(f.end.qp.State() == verbs.StateErr, "the second: state %v", f.end.qp.State())
		t.must(f.got().fatal > 0, "the second: no NAK")
		check(mr.Close())
	})
}
