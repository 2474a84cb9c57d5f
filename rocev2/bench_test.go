package rocev2

import (
	"fmt"
	"net/netip"
	"testing"
)

var benchSizes = []int{64, 1024, 4096}

func benchFlows(b *testing.B, run func(b *testing.B, flow *Flow, packet []byte)) {
	for _, n := range benchSizes {
		for name, flow := range map[string]*Flow{"IPv4": &testFlow4, "IPv6": &testFlow6} {
			packet := testPacket(RCWriteOnly, n).AppendTo(make([]byte, 0, MaxPacketLen))
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(n))
				run(b, flow, packet)
			})
		}
	}
}

func BenchmarkSeal(b *testing.B) {
	benchFlows(b, func(b *testing.B, flow *Flow, packet []byte) {
		for b.Loop() {
			flow.Seal(0, packet)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	benchFlows(b, func(b *testing.B, flow *Flow, packet []byte) {
		sealed := flow.Seal(0, packet)
		for b.Loop() {
			if !flow.Verify(0, sealed) {
				b.Fatal("does not verify")
			}
		}
	})
}

// BenchmarkRecover is of packets whose Identification is not 0.
func BenchmarkRecover(b *testing.B) {
	for _, n := range benchSizes {
		packet := testFlow4.Seal(0x1234, testPacket(RCWriteOnly, n).AppendTo(nil))
		b.Run(fmt.Sprintf("IPv4/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(n))
			for b.Loop() {
				if _, ok := testFlow4.Recover(packet); !ok {
					b.Fatal("not recovered")
				}
			}
		})
	}
}

func BenchmarkSealAck(b *testing.B) {
	packet := testPacket(RCAcknowledge, 0).AppendTo(make([]byte, 0, MaxPacketLen))
	b.ReportAllocs()
	for b.Loop() {
		testFlow4.Seal(0, packet)
	}
}

func BenchmarkNewFlow(b *testing.B) {
	src, dst := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	b.ReportAllocs()
	for b.Loop() {
		NewFlow(src, dst, 49441, UDPPort)
	}
}

func BenchmarkParse(b *testing.B) {
	for _, o := range []Opcode{RCSendMiddle, RCWriteOnly, RCAcknowledge, RCCompareSwap} {
		packet := append(testPacket(o, 1024).AppendTo(nil), 0, 0, 0, 0)
		b.Run(o.String(), func(b *testing.B) {
			b.ReportAllocs()
			var p Packet
			for b.Loop() {
				if err := p.Parse(packet); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendTo(b *testing.B) {
	for _, o := range []Opcode{RCSendMiddle, RCWriteOnly, RCAcknowledge} {
		p := testPacket(o, 1024)
		buf := make([]byte, 0, MaxPacketLen)
		b.Run(o.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.AppendTo(buf)
			}
		})
	}
}
