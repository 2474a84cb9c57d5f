package loopback

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
	"github.com/gosoftroce/rocev2/verbs"
)

const regionSize = 4 << 20

// nextHost gives every device of a test run an address of its own below
// 127.0.0.0/8, so that tests run beside each other on port 4791.
var nextHost atomic.Uint32

func freshIPv4() netip.Addr {
	n := nextHost.Add(1)
	return netip.AddrFrom4([4]byte{127, byte(91 + n>>16), byte(n >> 8), byte(n)})
}

// nextPort does the same for ::1, of which there is one.
var nextPort atomic.Uint32

type network struct {
	name string
	open func(t *testing.T) (a, b transport.Link)
}

var networks = []network{
	{"IPv4", func(t *testing.T) (a, b transport.Link) {
		return openUDP(t, freshIPv4(), 0), openUDP(t, freshIPv4(), 0)
	}},
	{"IPv6", func(t *testing.T) (a, b transport.Link) {
		// One host address: the two sides talk over the same port, that
		// is to themselves, so they are queue pairs of one device.
		l := openUDP(t, netip.IPv6Loopback(), uint16(40000+nextPort.Add(1)))
		return l, nil
	}},
}

func openUDP(t *testing.T, a netip.Addr, port uint16) transport.Link {
	t.Helper()
	l, err := udp.Open(a, udp.Config{Port: port})
	if err != nil {
		if a.Is6() && strings.Contains(err.Error(), "not") && !hasIPv6() {
			t.Skipf("this machine has no IPv6 loopback address (sysctl net.ipv6.conf.lo.disable_ipv6=0): %v", err)
		}
		t.Fatal(err)
	}
	return l
}

func hasIPv6() bool {
	c, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		return false
	}
	c.Close()
	return true
}

type side struct {
	t  *testing.T
	pd *verbs.PD
	cq *verbs.CQ
	qp *verbs.QP
	mr *verbs.MR
}

func newSide(t *testing.T, dev *verbs.Device) *side {
	t.Helper()
	s := &side{t: t}
	var err error
	s.pd, err = dev.AllocPD()
	check(t, err)
	s.cq, err = dev.CreateCQ(256)
	check(t, err)
	s.mr, err = s.pd.AllocMemory(regionSize, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	check(t, err)
	s.qp, err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq})
	check(t, err)
	return s
}

// patient is a local ACK timeout of 1 s: a busy or emulated machine may let a
// device wait for longer than the retries of shorter ones last.
const patient = 18

// connectedPair opens devices on the network's links, wrapped by wrap, and
// connects a queue pair of each.
func connectedPair(t *testing.T, n network, mtu verbs.MTU, wrap func(transport.Link, uint64) transport.Link) (a, b *side) {
	t.Helper()
	a, b = devicePair(t, n, wrap)
	c := verbs.WithConfig(verbs.ConnectConfig{PathMTU: mtu, Timeout: patient})
	check(t, a.qp.Connect(t.Context(), b.qp.Endpoint(), c))
	check(t, b.qp.Connect(t.Context(), a.qp.Endpoint(), c))
	return a, b
}

// devicePair is connectedPair without the connection.
func devicePair(t *testing.T, n network, wrap func(transport.Link, uint64) transport.Link) (a, b *side) {
	t.Helper()
	la, lb := n.open(t)
	open := func(l transport.Link, seed uint64) *verbs.Device {
		dev, err := verbs.OpenLink(wrap(l, seed), verbs.Config{})
		check(t, err)
		t.Cleanup(func() { check(t, dev.Close()) })
		return dev
	}
	da := open(la, 1)
	db := da
	if lb != nil {
		db = open(lb, 2)
	}
	return newSide(t, da), newSide(t, db)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *side) waitOK(id uint64) verbs.WC {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	var wc [1]verbs.WC
	if _, err := s.cq.Wait(ctx, wc[:]); err != nil {
		s.t.Fatal(err)
	}
	if wc[0].Status != verbs.StatusSuccess || wc[0].ID != id {
		s.t.Fatalf("completion %+v (%v), want success of %d", wc[0], wc[0].Status, id)
	}
	return wc[0]
}

func (s *side) post(wr verbs.SendWR) {
	s.t.Helper()
	wr.Signaled = true
	check(s.t, s.qp.PostSend(wr))
}

// exercise runs every operation at several sizes, in both directions, and
// compares what arrives.
func exercise(t *testing.T, a, b *side, sizes []int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range sizes {
		for _, dir := range [][2]*side{{a, b}, {b, a}} {
			from, to := dir[0], dir[1]
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
			copy(from.mr.Bytes(), data)
			for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWriteImm} {
				transfer(t, from, to, op, data)
			}
			clear(to.mr.Bytes()[:n])
			to.post(verbs.SendWR{ID: 5, Opcode: verbs.OpRead, SGList: []verbs.SGE{to.mr.Slice(0, n)}, Remote: from.mr.RemoteAt(0)})
			to.waitOK(5)
			compare(t, "READ", to.mr.Bytes()[:n], data)
			atomics(t, from, to)
		}
	}
}

func transfer(t *testing.T, from, to *side, op verbs.Opcode, data []byte) {
	t.Helper()
	n := len(data)
	clear(to.mr.Bytes()[:n])
	receives := op != verbs.OpWrite
	if receives {
		check(t, to.qp.PostRecv(verbs.RecvWR{ID: 1, SGList: []verbs.SGE{to.mr.Slice(0, n)}}))
	}
	from.post(verbs.SendWR{ID: 2, Opcode: op, SGList: []verbs.SGE{from.mr.Slice(0, n)}, Remote: to.mr.RemoteAt(0), Imm: 0xbeef})
	from.waitOK(2) // first: one that has failed is never received
	if receives {
		wc := to.waitOK(1)
		if int(wc.ByteLen) != n || wc.WithImm != (op != verbs.OpSend) || wc.WithImm && wc.Imm != 0xbeef {
			t.Fatalf("%v: receive completion %+v", op, wc)
		}
	}
	compare(t, op.String(), to.mr.Bytes()[:n], data)
}

func compare(t *testing.T, op string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%s of %d bytes delivered something else", op, len(want))
	}
}

func atomics(t *testing.T, from, to *side) {
	t.Helper()
	const word, result = regionSize - 8, regionSize - 64
	check(t, to.mr.Store64(word, 100))
	for i, wr := range []verbs.SendWR{
		{Opcode: verbs.OpFetchAdd, CompareAdd: 5},
		{Opcode: verbs.OpCompareSwap, CompareAdd: 105, Swap: 7},
		{Opcode: verbs.OpCompareSwap, CompareAdd: 105, Swap: 8},
	} {
		wr.ID, wr.SGList, wr.Remote = 9, []verbs.SGE{from.mr.Slice(result, 8)}, to.mr.RemoteAt(word)
		from.post(wr)
		from.waitOK(9)
		if got, want := binary.NativeEndian.Uint64(from.mr.Bytes()[result:]), []uint64{100, 105, 7}[i]; got != want {
			t.Fatalf("%v returned %d, want %d", wr.Opcode, got, want)
		}
	}
}

func TestEveryOperation(t *testing.T) {
	t.Parallel()
	plain := func(l transport.Link, _ uint64) transport.Link { return l }
	for _, n := range networks {
		for _, mtu := range []verbs.MTU{verbs.MTU256, verbs.MTU1024, verbs.MTU4096} {
			t.Run(fmt.Sprintf("%s/%d", n.name, mtu.Bytes()), func(t *testing.T) {
				t.Parallel()
				a, b := connectedPair(t, n, mtu, plain)
				exercise(t, a, b, []int{0, 1, 1000, 4096, 65537, 1 << 20, regionSize / 2})
			})
		}
	}
}

// A device of several shards: queue pairs are spread over its sockets, and each
// finds its packets.
func TestShards(t *testing.T) {
	t.Parallel()
	const qps = 64
	open := func() *verbs.Device {
		dev, err := verbs.OpenAddr(freshIPv4(), verbs.Config{Shards: 4})
		check(t, err)
		t.Cleanup(func() { check(t, dev.Close()) })
		return dev
	}
	a, b := newSide(t, open()), newSide(t, open())
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range a.mr.Bytes() {
		a.mr.Bytes()[i] = byte(rng.Uint32())
	}
	for i := range qps {
		qa, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: a.cq, RecvCQ: a.cq})
		check(t, err)
		qb, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: b.cq, RecvCQ: b.cq})
		check(t, err)
		check(t, qa.Connect(t.Context(), qb.Endpoint()))
		check(t, qb.Connect(t.Context(), qa.Endpoint()))
		check(t, qa.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true,
			SGList: []verbs.SGE{a.mr.Slice(8192*i, 8192)}, Remote: b.mr.RemoteAt(8192 * i)}))
	}
	for range qps {
		a.waitOK(0)
	}
	compare(t, "WRITE over shards", b.mr.Bytes()[:8192*qps], a.mr.Bytes()[:8192*qps])
	if drops := b.pd.Device().Stats().Drops; drops["unknown_qpn"] != 0 {
		t.Errorf("packets did not find their queue pair: %v", drops)
	}
}
