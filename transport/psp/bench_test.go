package psp_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	wire "github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/psp"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// BenchmarkSockets sends packets over a loopback socket and receives them, in
// turn in one goroutine: what both sides take for a packet, in clear and
// sealed.
func BenchmarkSockets(b *testing.B) {
	for _, size := range []int{8, 1024, 4096} {
		b.Run(fmt.Sprintf("clear/%d", size), func(b *testing.B) { sockets(b, size, nil) })
		for _, v := range []wire.Version{wire.GCM128, wire.GCM256, wire.GMAC128} {
			b.Run(fmt.Sprintf("%v/%d", v, size), func(b *testing.B) { sockets(b, size, key(b, v)) })
		}
	}
}

func sockets(b *testing.B, size int, k *wire.Key) {
	open := func() transport.Link {
		n := rand.Uint32()
		l, err := udp.Open(netip.AddrFrom4([4]byte{127, byte(n>>16)%250 + 2, byte(n >> 8), byte(n)%250 + 2}), udp.Config{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { l.Close() })
		return l
	}
	from, to := open(), open()
	path := transport.Path{Dst: to.Addr()}
	if k != nil {
		s, r := psp.New(from), psp.New(to)
		if err := errors.Join(s.Seal(to.Addr(), spiAB, k), r.Accept(from.Addr(), spiAB, k)); err != nil {
			b.Fatal(err)
		}
		from, to, path.SPI = s, r, spiAB
	}
	const packets = 30
	tx, rx := batch(transport.NewPath(from.Addr(), path), repeat(size, packets)...), transport.NewRxBatch(8)
	b.ReportAllocs()
	lost := 0
	for b.Loop() {
		if err := from.Send(tx); err != nil {
			b.Fatal(err)
		}
		for got := 0; got < packets; {
			n, err := to.Recv(rx)
			if err != nil {
				b.Fatal(err)
			}
			if n == 0 {
				lost += packets - got
				break
			}
			got += n
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*packets), "ns/packet")
	b.ReportMetric(float64(lost), "lost")
}
