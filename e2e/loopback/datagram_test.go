package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

const dgramQKey = 0x11111111

// typedQP makes a queue pair of another type on a side.
func (s *side) typedQP(typ verbs.QPType) *verbs.QP {
	s.t.Helper()
	q, err := s.pd.CreateQP(verbs.QPConfig{Type: typ, SendCQ: s.cq, RecvCQ: s.cq})
	check(s.t, err)
	return q
}

// SEND and WRITE over UC on real sockets, of one packet and of many.
func TestUnreliableConnections(t *testing.T) {
	t.Parallel()
	plain := func(l transport.Link, _ uint64) transport.Link { return l }
	for _, n := range networks {
		for _, mtu := range []verbs.MTU{verbs.MTU256, verbs.MTU4096} {
			t.Run(fmt.Sprintf("%s/%d", n.name, mtu.Bytes()), func(t *testing.T) {
				t.Parallel()
				a, b := devicePair(t, n, plain)
				a.qp, b.qp = a.typedQP(verbs.UC), b.typedQP(verbs.UC)
				check(t, a.qp.Connect(t.Context(), b.qp.Endpoint(), verbs.WithMTU(mtu)))
				check(t, b.qp.Connect(t.Context(), a.qp.Endpoint(), verbs.WithMTU(mtu)))
				rng := rand.New(rand.NewPCG(8, 9))
				for _, size := range []int{0, 1, 1000, 4096, 65537} {
					data := make([]byte, size)
					for i := range data {
						data[i] = byte(rng.Uint32())
					}
					for _, dir := range [][2]*side{{a, b}, {b, a}} {
						copy(dir[0].mr.Bytes(), data)
						for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpSendImm, verbs.OpWriteImm} {
							transfer(t, dir[0], dir[1], op, data)
						}
					}
				}
			})
		}
	}
}

// Datagrams on real sockets: what the address handle says is what the receiver
// sees, and the completion and the buffer lead back to the sender. With shards
// the management queue pair finds its packets, too.
func TestDatagrams(t *testing.T) {
	t.Parallel()
	plain := func(l transport.Link, _ uint64) transport.Link { return l }
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			a, b := devicePair(t, n, plain)
			a.qp, b.qp = a.typedQP(verbs.UD), b.typedQP(verbs.UD)
			datagrams(t, a, b, dgramQKey)
		})
	}
	for _, typ := range []verbs.QPType{verbs.UD, verbs.GSI} {
		t.Run(fmt.Sprintf("4 shards/%v", typ), func(t *testing.T) {
			t.Parallel()
			var sides [2]*side
			for i := range sides {
				dev, err := verbs.OpenAddr(freshIPv4(), verbs.Config{Shards: 4})
				if errors.Is(err, errors.ErrUnsupported) {
					t.Skip("the link of this system has no shards: run it on Linux")
				}
				check(t, err)
				t.Cleanup(func() { check(t, dev.Close()) })
				sides[i] = newSide(t, dev)
				sides[i].qp = sides[i].typedQP(typ)
			}
			datagrams(t, sides[0], sides[1], dgramQKey)
		})
	}
}

func datagrams(t *testing.T, a, b *side, qkey uint32) {
	t.Helper()
	check(t, a.qp.Activate(qkey))
	check(t, b.qp.Activate(qkey))
	src, dst := a.pd.Device().Addr(), b.pd.Device().Addr()
	port := a.pd.Device().QueryPort() // some links know neither traffic classes nor source ports
	av := verbs.AddressVector{DGID: dst, TrafficClass: 0x6a, HopLimit: 9, SL: 3}
	ah, err := a.pd.CreateAH(av)
	check(t, err)
	const at = 1 << 20
	for i, size := range []int{0, 1, 2, 3, 255, 256, 4095, 4096} {
		if i == 4 { // another way there
			av.TrafficClass, av.HopLimit = 0, 0
			if port.SourcePorts {
				av.SrcPort = verbs.AutoSourcePort
			}
			check(t, ah.Modify(av))
		}
		for k := range size {
			a.mr.Bytes()[k] = byte(k*3 + size)
		}
		check(t, b.qp.PostRecv(verbs.RecvWR{ID: 1, SGList: []verbs.SGE{b.mr.Slice(at, verbs.GRHLen+size)}}))
		a.post(verbs.SendWR{ID: 2, Opcode: verbs.OpSendImm, Imm: uint32(size), SGList: []verbs.SGE{a.mr.Slice(0, size)}, AH: ah,
			RemoteQPN: b.qp.QPN(), RemoteQKey: qkey})
		a.waitOK(2)
		wc := b.waitOK(1)
		buf := b.mr.Bytes()[at:]
		if int(wc.ByteLen) != verbs.GRHLen+size || !wc.WithGRH || wc.SrcQPN != a.qp.QPN() || int(wc.Imm) != size {
			t.Fatalf("%d bytes: %+v", size, wc)
		}
		compare(t, "datagram", buf[verbs.GRHLen:][:size], a.mr.Bytes()[:size])
		h, err := verbs.ParseGRH(buf)
		check(t, err)
		if h.Src != src || h.Dst != dst || port.ECN && (h.TrafficClass != av.TrafficClass || av.HopLimit != 0 && h.HopLimit != 9) {
			t.Errorf("%d bytes: header %+v", size, h)
		}
		back, err := b.pd.AHFromWC(wc, buf)
		check(t, err)
		check(t, a.qp.PostRecv(verbs.RecvWR{ID: 3, SGList: []verbs.SGE{a.mr.Slice(at/2, 100)}}))
		b.post(verbs.SendWR{ID: 4, Opcode: verbs.OpSend, SGList: []verbs.SGE{b.mr.Slice(at+verbs.GRHLen, min(size, 60))}, AH: back,
			RemoteQPN: wc.SrcQPN, RemoteQKey: qkey | verbs.HighQKey}) // its own
		b.waitOK(4)
		a.waitOK(3)
		check(t, back.Close())
	}
	if q := ah.Query(); q.SL != 3 || port.SourcePorts && q.SrcPort < 49152 {
		t.Errorf("address handle %+v", q)
	}
	for _, s := range []*side{a, b} {
		if d := s.qp.Stats().Drops; d.Total() != 0 {
			t.Errorf("%+v", d)
		}
	}
}
