package udp

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// loopback returns an address of 127.0.0.0/8 that no other test uses.
func loopback() netip.Addr {
	n := rand.Uint32()
	return netip.AddrFrom4([4]byte{127, byte(n>>16)%250 + 2, byte(n >> 8), byte(n)%250 + 2})
}

// lastPort hands out ports for ::1, of which there is only one. Those of a
// process differ.
var lastPort atomic.Uint32

func init() { lastPort.Store(rand.Uint32() / 2) }

// port returns a port that no other test uses, nor another process at the
// moment, where that can be known: in Wine 8, package net opens no UDP socket.
// A process that a test starts meanwhile would have the socket, too, until it
// executes its program.
func port() (p uint16) {
	const first, count = 20000, 12000 // below those that systems choose
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	for range count {
		p = uint16(first + lastPort.Add(1)%count)
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv6loopback, Port: int(p)})
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, addrInUse) {
			return p
		}
	}
	return p // all are taken
}

func open(t testing.TB, addr netip.Addr, c Config) *Link {
	t.Helper()
	l, err := Open(addr, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// packet returns BTH to pad of a packet with a payload of n bytes.
func packet(psn, n int) []byte {
	p := rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: rocev2.RCWriteMiddle, PKey: rocev2.DefaultPKey, DestQPN: 0x123456, PSN: rocev2.PSN(psn)},
		Payload: bytes.Repeat([]byte{byte(psn)}, n),
	}
	return p.AppendTo(nil)
}

func put(t testing.TB, b *transport.TxBatch, p *transport.Path, data []byte) {
	t.Helper()
	room := b.Room()
	if room == nil {
		t.Fatal("no room in the batch")
	}
	b.Commit(copy(room, data), p)
}

// receive waits until n packets have come and returns copies.
func receive(t testing.TB, l transport.Link, n int) []transport.RxPacket {
	t.Helper()
	var got []transport.RxPacket
	b := transport.NewRxBatch(8)
	for len(got) < n {
		if err := l.Wait(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Recv(b); err != nil {
			t.Fatal(err)
		}
		for _, p := range b.Packets() {
			p.Data = bytes.Clone(p.Data)
			got = append(got, p)
		}
	}
	return got
}
