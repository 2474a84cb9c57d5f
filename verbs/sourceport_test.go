package verbs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
	"github.com/gosoftroce/rocev2/verbs"
)

// loopbackSide is a side on a real socket.
func loopbackSide(t testing.TB, cfg verbs.Config, size int) *side {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("source ports are there on Linux only: run it there")
	}
	n := rand.Uint32()
	addr := netip.AddrFrom4([4]byte{127, byte(n>>16)%250 + 2, byte(n >> 8), byte(n)%250 + 2})
	dev, err := verbs.OpenAddr(addr, cfg)
	check(t, err)
	t.Cleanup(func() { check(t, dev.Close()) })
	return newSide(t, dev, size)
}

// sendBoth moves size bytes from a to b by WRITE and back by READ.
func sendBoth(t *testing.T, a, b *side, q *verbs.QP) {
	t.Helper()
	want := a.fill(uint64(q.QPN()))
	n := len(want)
	check(t, q.PostSend(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Signaled: true, SGList: []verbs.SGE{a.mr.Slice(0, n)}, Remote: b.mr.Remote().At(0)}))
	a.waitOK(1)
	clear(a.mr.Bytes())
	check(t, q.PostSend(verbs.SendWR{ID: 2, Opcode: verbs.OpRead, Signaled: true, SGList: []verbs.SGE{a.mr.Slice(0, n)}, Remote: b.mr.Remote().At(0)}))
	a.waitOK(2)
	if !bytes.Equal(a.mr.Bytes(), want) {
		t.Fatal("what was read differs")
	}
}

// Queue pairs with source ports of every kind on real sockets, with shards too,
// and more of them than a device has ports.
func TestSourcePortsOverLoopback(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 4} {
		a := loopbackSide(t, verbs.Config{Shards: shards}, 300000)
		b := loopbackSide(t, verbs.Config{Shards: shards}, 300000)
		ports := map[uint16]bool{}
		for i := range udp.MaxSourcePorts + 20 {
			qa, qb := a.newQP(verbs.QPConfig{}), b.newQP(verbs.QPConfig{})
			connect(t, qa, qb, verbs.WithSourcePort(verbs.AutoSourcePort))
			port := qa.Query().AV.SrcPort
			if port < 49152 {
				t.Fatalf("QP %v sends from port %d", qa.QPN(), port)
			}
			ports[port] = true
			if i%10 == 0 {
				sendBoth(t, a, b, qa)
			}
		}
		if len(ports) != udp.MaxSourcePorts {
			t.Errorf("%d ports are in use", len(ports))
		}
		if s := a.dev.Stats().Link; s.TxErrors != 0 || s.RxBadICRC != 0 {
			t.Errorf("stats %+v", s)
		}
		// One more of one's own choice is refused.
		q := a.newQP(verbs.QPConfig{})
		var port uint16 = 49152
		for ports[port] {
			port++
		}
		if err := q.Connect(t.Context(), b.qp.Endpoint(), verbs.WithSourcePort(port)); err == nil || !strings.Contains(err.Error(), "64 source ports are open") {
			t.Errorf("one more port: %v", err)
		}
	}
}

// Each side sends from the port that it chose, and a port that is in use is an
// error of Connect. Ports are of the dynamic range (RFC 6335 6).
func TestWithSourcePort(t *testing.T) {
	t.Parallel()
	a, b := loopbackSide(t, verbs.Config{}, 5000), loopbackSide(t, verbs.Config{}, 5000)
	taken, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.dev.Addr(), 0)))
	check(t, err)
	defer taken.Close()
	port := uint16(taken.LocalAddr().(*net.UDPAddr).Port)
	if port < 49152 { // where the system takes its ports from depends on its settings
		taken, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.dev.Addr(), 61234)))
		check(t, err)
		defer taken.Close()
		port = 61234
	}
	err = a.qp.Connect(t.Context(), b.qp.Endpoint(), verbs.WithSourcePort(port))
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "choose another source port") {
		t.Fatalf("a port that is taken: %v", err)
	}
	if err := a.qp.ReadyToReceive(b.qp.Endpoint(), verbs.WithSourcePort(1000)); err == nil || !strings.Contains(err.Error(), "49152 to 65535") {
		t.Errorf("a port out of range: %v", err)
	}
	check(t, a.qp.ReadyToReceive(b.qp.Endpoint(), verbs.WithSourcePort(63001)))
	check(t, a.qp.ReadyToSend())
	check(t, b.qp.Connect(t.Context(), a.qp.Endpoint(), verbs.WithSourcePort(63002)))
	if pa, pb := a.qp.Query().AV.SrcPort, b.qp.Query().AV.SrcPort; pa != 63001 || pb != 63002 {
		t.Errorf("ports %d and %d", pa, pb)
	}
	sendBoth(t, a, b, a.qp)
}

// portSpy notes which source ports packets arrive from.
type portSpy struct {
	transport.Link
	seen chan uint16
}

func (s portSpy) Recv(b *transport.RxBatch) (int, error) {
	n, err := s.Link.Recv(b)
	for _, p := range b.Packets() {
		select {
		case s.seen <- p.SrcPort:
		default:
		}
	}
	return n, err
}

// Both ends of a connection choose the same port, and it is on the packets. It
// gives the connection entropy for routers (IBTA A17).
func TestAutoSourcePortOnTheWire(t *testing.T) {
	t.Parallel()
	la, lb := fabric.Pair(addrA, addrB)
	spies := []portSpy{{la, make(chan uint16, 1)}, {lb, make(chan uint16, 1)}}
	var sides []*side
	for _, s := range spies {
		dev, err := verbs.OpenLink(s, verbs.Config{})
		check(t, err)
		t.Cleanup(func() { check(t, dev.Close()) })
		sides = append(sides, newSide(t, dev, 100))
	}
	a, b := sides[0], sides[1]
	connect(t, a.qp, b.qp, verbs.WithSourcePort(verbs.AutoSourcePort))
	sendBoth(t, a, b, a.qp)
	want := a.qp.Query().AV.SrcPort
	if pa, pb := <-spies[1].seen, <-spies[0].seen; pa != want || pb != want || want < 49152 {
		t.Errorf("packets from ports %d and %d, want %d", pa, pb, want)
	}
}

// An Endpoint tells the peer's kind, also as text; one made by hand does not.
func TestEndpointTellsItsKind(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	text, err := json.Marshal(b.qp.Endpoint())
	check(t, err)
	var e verbs.Endpoint
	check(t, json.Unmarshal(text, &e))
	if e != b.qp.Endpoint() || !e.Native || !a.qp.Query().AV.Native {
		t.Errorf("%s became %+v", text, e)
	}
	text, err = json.Marshal(verbs.Endpoint{Addr: addrB, QPN: 1})
	check(t, err)
	if strings.Contains(string(text), "own") {
		t.Errorf("made by hand: %s", text)
	}
}
