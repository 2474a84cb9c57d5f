package rocev2

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

var (
	testFlow4 = NewFlow(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), 49441, UDPPort)
	testFlow6 = NewFlow(netip.MustParseAddr("fe80::200:ff:fe00:1"), netip.MustParseAddr("fe80::200:ff:fe00:2"), 49441, UDPPort)
)

// bitwiseCRC is CRC-32 of IEEE 802.3 as the standard's shift register has it,
// most significant coefficient first, each byte entering with its least
// significant bit: an implementation that has nothing in common with the one
// under test.
func bitwiseCRC(b []byte) uint32 {
	var reg uint64 = 0xffffffff
	for _, x := range b {
		for i := range 8 {
			in := uint64(x>>i) & 1
			reg <<= 1
			if reg>>32&1 != in {
				reg ^= 0x04c11db7
			}
			reg &= 0xffffffff
		}
	}
	var out uint32
	for i := range 32 { // bits leave in the reverse order
		out |= uint32(reg>>i&1) << (31 - i)
	}
	return ^out
}

// referenceICRC computes the ICRC by the letter of IBTA A17.3.3, from a whole
// IP datagram without ICRC whose length fields already count it. With flush, it
// does as Linux does for FLUSH.
func referenceICRC(datagram []byte, flush bool) uint32 {
	b := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, datagram...)
	ip := b[8:]
	udp := ip[20:]
	if ip[0]>>4 == 6 {
		udp = ip[40:]
		ip[0] |= 0x0f
		ip[1], ip[2], ip[3], ip[7] = 0xff, 0xff, 0xff, 0xff
	} else {
		ip[1], ip[8], ip[10], ip[11] = 0xff, 0xff, 0xff, 0xff
	}
	raw := append([]byte(nil), udp[8:]...)
	udp[6], udp[7], udp[8+4] = 0xff, 0xff, 0xff
	if flush {
		b = append(b[:len(b)-len(raw)+32], raw...)
	}
	return bitwiseCRC(b)
}

// datagram puts IP and UDP headers in front of a packet without ICRC, with
// length fields that count the ICRC.
func datagram(v6 bool, ipID uint16, packet []byte) []byte {
	n := uint16(8 + len(packet) + 4)
	var b []byte
	if v6 {
		b = append(b, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, n)
		b = append(b, 17, 64)
		for _, last := range []byte{1, 2} {
			b = append(b, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, last)
		}
	} else {
		b = append(b, 0x45, 0)
		b = binary.BigEndian.AppendUint16(b, n+20)
		b = binary.BigEndian.AppendUint16(b, ipID)
		b = append(b, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	}
	b = append(b, 0xc1, 0x21, 0x12, 0xb7)
	b = binary.BigEndian.AppendUint16(b, n)
	return append(append(b, 0, 0), packet...)
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The shift register has the check value of the catalogues of CRCs (IBTA
// 7.8.1).
func TestBitwiseCRC(t *testing.T) {
	t.Parallel()
	if got := bitwiseCRC([]byte("123456789")); got != 0xcbf43926 {
		t.Errorf("bitwiseCRC(\"123456789\") = %#x, want the catalogue's 0xcbf43926", got)
	}
}

// cmRequest is a connection request in a UD packet, with IP header and ICRC.
var cmRequest = `
	4500013400004000401125b70a0000010a000002 d87212b701200000 6400ffff0000000180000000 8001000000000001
	010702030000000000000009112233440010000000000000
	11223344 00000000 0000000001061c06 020000fffe000001 00000000 00000000
	00001101 00000001 000000a0 123456a7 ffff 37 f0 ffff ffff
	00000000000000000000ffff0a000001 00000000000000000000ffff0a000002
	307c6000 00 40 00 88 ` + strings.Repeat("00", 44) + `
	00 40 9c40 0000000000000000000000000a000001 0000000000000000000000000a000002 ` + strings.Repeat("00", 56) + `
	23405059`

// Vectors of the ICRC (IBTA 7.8.1, A17.3.3), one for each form of a FLUSH.
func TestICRCVectors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, datagram string
		icrc           uint32
		opcode         Opcode
	}{
		{"SEND", "4500003012344000401114870a0000010a000002 c12112b7001c0000 0400ffff0000001180000001 70696e67 4eadb565", 0x65b5ad4e, RCSendOnly},
		{"ACK", "4500003000004000401126bb0a0000020a000001 c12112b7001c0000 1100ffff0000001100000001 1f000001 737b6885", 0x85687b73, RCAcknowledge},
		{"pad", "4500003400004000401126b70a0000010a000002 c12112b700200000 04b0ffff0000001180000002 68656c6c6f000000 26052111", 0x11210526, RCSendOnly},
		{"READ", "4500003c00004000401126af0a0000010a000002 c12112b700280000 0c00ffff0000001180000003 112233445566778800deadbe00001388 a5a3ae6f", 0x6faea3a5, RCReadRequest},
		{"CAS", "4500004800004000401126a30a0000010a000002 c12112b700340000 1300ffff0000001180000008 112233445566770000deadbe00000000000000020000000000000001 f0458bb1", 0xb18b45f0, RCCompareSwap},
		{"Linux FLUSH", "4500004000004000401126ab0a0000010a000002 c12112b7002c0000 1c00ffff0000001180000009 00000001112233445566770000deadbe00000040 782cf160", 0x60f12c78, RCFlush},
		{"FLUSH", "4500004000004000401126ab0a0000010a000002 c12112b7002c0000 1c00ffff0000001180000009 00000001112233445566770000deadbe00000040 8e003578", 0x7835008e, RCFlush},
		{"IPv6", "60000000001c1140fe80000000000000020000fffe000001fe80000000000000020000fffe000002 c12112b7001c0000 0400ffff0000001180000001 70696e67 ef594bca", 0xca4b59ef, RCSendOnly},
		{"CM REQ", cmRequest, 0x59504023, UDSendOnly},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			checkDatagram(t, unhex(t, tt.datagram), tt.opcode, tt.icrc)
		})
	}
}

// checkDatagram holds every way to compute and to check an ICRC against a
// datagram that is known to be right, and re-encodes it.
func checkDatagram(t *testing.T, b []byte, opcode Opcode, icrc uint32) {
	t.Helper()
	flow, ipID, packet := openDatagram(t, b)
	body := packet[: len(packet)-4 : len(packet)-4]
	var p Packet
	if err := p.Parse(packet); err != nil {
		t.Fatal(err)
	}
	if p.BTH.Opcode != opcode {
		t.Errorf("opcode %v, want %v", p.BTH.Opcode, opcode)
	}
	if got := p.AppendTo(poisoned(MaxPacketLen)); string(got) != string(body) {
		t.Errorf("re-encoded:\n got %x\nwant %x", got, body)
	}
	got := [2]uint32{flow.ICRC(ipID, body), binary.LittleEndian.Uint32(flow.SealKernelFlush(ipID, body)[len(body):])}
	if got[0] != icrc && got[1] != icrc {
		t.Errorf("ICRC %#x or, to Linux, %#x; want %#x", got[0], got[1], icrc)
	}
	if got[0] != got[1] && opcode != RCFlush {
		t.Errorf("ICRC %#x, but to Linux %#x", got[0], got[1])
	}
	if !flow.Verify(ipID, packet) {
		t.Error("does not verify")
	}
	if id, ok := flow.Recover(packet); !ok || id != ipID {
		t.Errorf("recovered Identification %#x, %t, want %#x", id, ok, ipID)
	}
	if !VerifyDatagram(b) {
		t.Error("does not verify as a datagram")
	}
	if ref := referenceICRC(b[:len(b)-4], got[0] != icrc); ref != icrc {
		t.Errorf("reference ICRC %#x, want %#x", ref, icrc)
	}
}

// openDatagram takes an IP datagram apart.
func openDatagram(t testing.TB, b []byte) (flow Flow, ipID uint16, packet []byte) {
	t.Helper()
	var src, dst netip.Addr
	n := 20
	if b[0]>>4 == 6 {
		n = 40
		src, dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	} else {
		src, dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		ipID = binary.BigEndian.Uint16(b[4:])
	}
	flow = NewFlow(src, dst, binary.BigEndian.Uint16(b[n:]), binary.BigEndian.Uint16(b[n+2:]))
	return flow, ipID, b[n+8:]
}

// The ICRC is that of the reference at every length, over IPv4 and IPv6 (IBTA
// 7.8.1, A17.3.3).
func TestICRCAgainstReference(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	lengths := []int{1024 + 12, 1024 + 28, 2048 + 16, 4096 + 12, 4096 + 28, MaxPacketLen - ICRCLen}
	for n := BTHLen; n < 400; n++ {
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		if n%3 == 0 {
			b[0] = byte(RCFlush)
		}
		ipID := uint16(rng.Uint32())
		for _, v6 := range []bool{false, true} {
			flow := testFlow4
			if v6 {
				flow = testFlow6
			}
			want := referenceICRC(datagram(v6, ipID, b), false)
			if got := flow.ICRC(ipID, b); got != want {
				t.Fatalf("%d bytes, IPv6 %t: ICRC %#x, want %#x", n, v6, got, want)
			}
			if !isFlush(b) {
				continue
			}
			want = referenceICRC(datagram(v6, ipID, b), true)
			sealed := flow.SealKernelFlush(ipID, b)
			if got := binary.LittleEndian.Uint32(sealed[n:]); got != want {
				t.Fatalf("%d bytes, IPv6 %t: Linux FLUSH ICRC %#x, want %#x", n, v6, got, want)
			}
			if !flow.Verify(ipID, sealed) || !VerifyDatagram(append(datagram(v6, ipID, b), sealed[n:]...)) {
				t.Fatalf("%d bytes, IPv6 %t: Linux FLUSH does not verify", n, v6)
			}
		}
	}
}

// Whatever the Identification and the length, Recover finds it, for both kinds
// of FLUSH too.
func TestRecoverEveryIdentification(t *testing.T) {
	t.Parallel()
	b := testPacket(RCSendOnly, 60).AppendTo(nil)
	for ipID := range 1 << 16 {
		sealed := testFlow4.Seal(uint16(ipID), b)
		if got, ok := testFlow4.Recover(sealed); !ok || got != uint16(ipID) {
			t.Fatalf("Identification %#x: recovered %#x, %t", ipID, got, ok)
		}
	}
}

func TestRecoverEveryLength(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	b := make([]byte, 0, MaxPacketLen)
	for range MaxPacketLen {
		b = append(b, byte(rng.Uint32()))
	}
	for n := BTHLen; n <= MaxPacketLen-ICRCLen; n++ {
		ipID := uint16(rng.Uint32())
		for _, o := range []Opcode{RCSendOnly, RCFlush} {
			b[0] = byte(o)
			packets := [][]byte{testFlow4.Seal(ipID, b[:n:n]), testFlow4.SealKernelFlush(ipID, b[:n:n])}
			for kind, sealed := range packets {
				got, ok := testFlow4.Recover(sealed)
				if n%4 != 0 {
					if ok {
						t.Fatalf("%v, %d bytes: recovered %#x from a packet that nobody sends", o, n, got)
					}
					continue
				}
				if !ok || got != ipID {
					t.Fatalf("%v, %d bytes, seal %d, Identification %#x: recovered %#x, %t", o, n, kind, ipID, got, ok)
				}
			}
		}
	}
	b = b[:MaxPacketLen]
	if _, ok := testFlow4.Recover(testFlow4.Seal(0, b)); ok {
		t.Error("a packet longer than MaxPacketLen is accepted")
	}
}

// Any one, two or three wrong bits are noticed even with the Identification
// unknown: a change that passes for one of the Identification takes more.
func TestRecoverNoticesDamage(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	b := testFlow4.Seal(0x1234, testPacket(RCSendOnly, 1024).AppendTo(nil))
	damaged := func(bits ...int) bool {
		for _, bit := range bits {
			b[bit/8] ^= 1 << (bit % 8)
		}
		id, ok := testFlow4.Recover(b)
		known := testFlow4.Verify(0x1234, b)
		for _, bit := range bits {
			b[bit/8] ^= 1 << (bit % 8)
		}
		if ok && id == 0x1234 || known {
			t.Fatalf("bits %v: damage passes as Identification %#x, known %t", bits, id, known)
		}
		return !ok
	}
	for bit := range len(b) * 8 {
		if bit/8 == 4 {
			continue // FECN, BECN and reserved bits are masked
		}
		if !damaged(bit) {
			t.Errorf("bit %d of byte %d flipped: passes", bit%8, bit/8)
		}
	}
	const rounds = 200000
	passed := 0
	for range rounds {
		bits := map[int]bool{}
		for len(bits) < 2+int(rng.Uint32()%8) {
			if bit := int(rng.Uint32() % uint32(len(b)*8)); bit/8 != 4 {
				bits[bit] = true
			}
		}
		list := make([]int, 0, 10)
		for bit := range bits {
			list = append(list, bit)
		}
		if !damaged(list...) {
			passed++
		}
	}
	// 16 bits of check let 3 of 200000 pass on average.
	if passed > 20 {
		t.Errorf("%d of %d damaged packets pass, which is more than 16 bits of check let through", passed, rounds)
	}
}

// The ICRC does not cover what routers may change (IBTA 7.8.1, A17.3.3): TOS,
// TTL and header checksum, traffic class, flow label and hop limit, UDP
// checksum, FECN and BECN.
func TestMaskedBits(t *testing.T) {
	t.Parallel()
	for _, flow := range []Flow{testFlow4, testFlow6} {
		b := flow.Seal(7, testPacket(RCSendOnly, 16).AppendTo(nil))
		for x := range 256 {
			b[4] = byte(x)
			if !flow.Verify(7, b) {
				t.Errorf("byte 4 of the BTH is %#x: does not verify", x)
			}
		}
	}
	for _, v6 := range []bool{false, true} {
		body := testPacket(RCSendOnly, 16).AppendTo(nil)
		flow, n := testFlow4, 20
		masked := map[int]bool{1: true, 8: true, 10: true, 11: true, 26: true, 27: true, 32: true}
		if v6 {
			flow, n = testFlow6, 40
			masked = map[int]bool{1: true, 2: true, 3: true, 7: true, 46: true, 47: true, 52: true}
		}
		b := append(datagram(v6, 7, body), flow.Seal(7, body)[len(body):]...)
		for i := range b {
			b[i] ^= 0xff
			if got := VerifyDatagram(b); got != masked[i] {
				t.Errorf("IPv6 %t, byte %d (UDP header at %d) changed: verifies %t", v6, i, n, got)
			}
			b[i] ^= 0xff
		}
	}
}

// What has no right ICRC does not verify, whatever its length (IBTA 7.8.1).
func TestVerifyRejectsGarbage(t *testing.T) {
	t.Parallel()
	long := make([]byte, 70000)
	for _, flow := range []Flow{testFlow4, testFlow6, {}} {
		for n := range 100 {
			if flow.Verify(0, long[:n:n]) {
				t.Errorf("%d zero bytes verify", n)
			}
			if _, ok := flow.Recover(long[:n:n]); ok {
				t.Errorf("%d zero bytes are right", n)
			}
		}
		if flow.Verify(0, long) {
			t.Error("70000 zero bytes verify")
		}
		if _, ok := flow.Recover(long); ok {
			t.Error("70000 zero bytes are right")
		}
	}
}

func TestVerifyDatagramTruncated(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		flow := testFlow4
		if v6 {
			flow = testFlow6
		}
		body := testPacket(RCFlush, 0).AppendTo(nil)
		b := append(datagram(v6, 7, body), flow.Seal(7, body)[len(body):]...)
		for n := range b {
			if VerifyDatagram(b[:n:n]) {
				t.Errorf("IPv6 %t: %d of %d bytes verify", v6, n, len(b))
			}
		}
		if !VerifyDatagram(append(b, 1, 2, 3)) {
			t.Errorf("IPv6 %t: does not verify with bytes of the link behind it", v6)
		}
	}
}

func TestFlowAddresses(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fe80::1")
	if NewFlow(v4, v4, 1, 2) != NewFlow(netip.AddrFrom16(v4.As16()), v4, 1, 2) {
		t.Error("an IPv4 address in IPv6 form makes a different flow")
	}
	if NewFlow(v6, v6, 1, 2) != NewFlow(v6.WithZone("eth0"), v6, 1, 2) {
		t.Error("a zone makes a different flow")
	}
	for _, pair := range [][2]netip.Addr{{v4, v6}, {v6, v4}, {v4, {}}, {{}, v6}, {{}, {}}} {
		flow := NewFlow(pair[0], pair[1], 1, 2)
		if flow.Valid() {
			t.Errorf("%v to %v is valid", pair[0], pair[1])
		}
		if sealed := flow.Seal(0, make([]byte, 16)); flow.Verify(0, sealed) {
			t.Errorf("%v to %v: verifies", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]netip.Addr{{v4, v4}, {v6, v6}} {
		if flow := NewFlow(pair[0], pair[1], 1, 2); !flow.Valid() {
			t.Errorf("%v to %v is not valid", pair[0], pair[1])
		}
	}
}

func TestICRCDoesNotAllocate(t *testing.T) {
	src, dst := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for _, flow := range []Flow{testFlow4, testFlow6} {
		for _, o := range []Opcode{RCSendOnly, RCFlush} {
			for _, n := range []int{0, 64, 1024, 4096} {
				p := testPacket(o, n)
				buf := p.AppendTo(make([]byte, 0, MaxPacketLen))
				whole := datagram(flow.kind == flowIPv6, 0, append(buf, 0, 0, 0, 0))
				ipID := uint16(0)
				allocs := testing.AllocsPerRun(100, func() {
					ipID++
					sealed := flow.Seal(ipID, buf)
					if !flow.Verify(ipID, sealed) {
						t.Fatal("does not verify")
					}
					sealed = flow.SealKernelFlush(ipID, buf)
					if _, ok := flow.Recover(sealed); !ok && flow.kind == flowIPv4 {
						t.Fatal("not recovered")
					}
					_, _ = flow.Recover(sealed[:len(sealed)-4])
					again := NewFlow(src, dst, 1, 2)
					_ = again.ICRC(ipID, buf)
					_ = VerifyDatagram(whole)
				})
				if allocs != 0 {
					t.Errorf("%v, payload %d: %v allocations", o, n, allocs)
				}
			}
		}
	}
}
