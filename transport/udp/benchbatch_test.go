package udp

import (
	"net"
	"net/netip"
	"strconv"
	"testing"

	"golang.org/x/net/ipv4"
)

// BenchmarkPackageNet moves packets as the portable link does: each there and
// back out of the socket, by package net.
func BenchmarkPackageNet(b *testing.B) {
	from, to, data, room := plainSockets(b, 1024)
	at := to.LocalAddr().(*net.UDPAddr).AddrPort()
	control := make([]byte, 256)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := from.WriteToUDPAddrPort(data, at); err != nil {
			b.Fatal(err)
		}
		if _, _, _, _, err := to.ReadMsgUDPAddrPort(room, control); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBatch is the same by ReadBatch and WriteBatch of golang.org/x/net,
// with n packets a call. It computes no ICRC. BenchmarkPerPacket is what the
// link of Linux takes for that, with the ICRC of both sides.
func BenchmarkBatch(b *testing.B) {
	for _, payload := range []int{4096, 1024} {
		for _, n := range []int{1, 16} {
			b.Run(strconv.Itoa(payload)+"/"+strconv.Itoa(n), func(b *testing.B) { batch(b, payload, n) })
		}
	}
}

func batch(b *testing.B, payload, n int) {
	from, to, data, _ := plainSockets(b, payload)
	w, r := ipv4.NewPacketConn(from), ipv4.NewPacketConn(to)
	out, in := make([]ipv4.Message, n), make([]ipv4.Message, n)
	for i := range n {
		out[i] = ipv4.Message{Buffers: [][]byte{data}, Addr: to.LocalAddr()}
		in[i] = ipv4.Message{Buffers: [][]byte{make([]byte, 8192)}, OOB: make([]byte, 256)}
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for i := 0; i < b.N; i += n {
		for sent := 0; sent < n; {
			k, err := w.WriteBatch(out[sent:], 0)
			if err != nil {
				b.Fatal(err)
			}
			sent += k
		}
		for got := 0; got < n; {
			k, err := r.ReadBatch(in[got:], 0)
			if err != nil {
				b.Fatal(err)
			}
			got += k
		}
	}
}

// plainSockets returns two sockets, the second of which tells the TTL, and a
// packet and room for one.
func plainSockets(b *testing.B, payload int) (from, to *net.UDPConn, data, room []byte) {
	b.Helper()
	var c [2]*net.UDPConn
	for i := range c {
		var err error
		if c[i], err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0"))); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c[i].Close() })
	}
	if err := ipv4.NewPacketConn(c[1]).SetControlMessage(ipv4.FlagTTL, true); err != nil {
		b.Logf("the system does not tell the TTL: %v", err)
	}
	return c[0], c[1], packet(1, payload), make([]byte, 8192)
}
