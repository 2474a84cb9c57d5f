package rocev2

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// knownOpcodes returns all opcodes of the table, in order.
func knownOpcodes() []Opcode {
	var known []Opcode
	for i := range 256 {
		if _, ok := Opcode(i).Info(); ok {
			known = append(known, Opcode(i))
		}
	}
	return known
}

// testPacket returns a packet in which every field of every header has a value
// of its own and every reserved bit is set.
func testPacket(o Opcode, payload int) *Packet {
	p := &Packet{
		BTH: BTH{
			Opcode: o, Solicited: true, MigReq: true, PKey: 0x8123, FECN: true, BECN: true, Reserved6: 0x3f,
			DestQPN: 0xfedcba, AckReq: true, Reserved7: 0x7f, PSN: 0xabcdef,
		},
		XRCETH:    XRCETH{Reserved: 0xf1, SRQN: 0xc0ffee},
		DETH:      DETH{QKey: 0x80010203, Reserved: 0xf2, SrcQPN: 0xd00d1e},
		FETH:      FETH{Type: FlushGlobal | FlushPersistent, Level: FlushRegion, Reserved: 0x3ffffff},
		RETH:      RETH{VA: 0xf1e2d3c4b5a69788, RKey: 0x90817263, Length: 0x80000001},
		AtomicETH: AtomicETH{VA: 0xe1e2d3c4b5a69788, RKey: 0xa0817263, SwapAdd: 0x8070605040302010, Compare: 0x9181716151413121},
		AETH:      AETH{Syndrome: NAKRemoteAccess, MSN: 0xfeed01},
		AtomicAck: AtomicAckETH{Original: 0xb8a7968574635241},
		Imm:       0xdeadbe01,
		IETH:      IETH{RKey: 0xcafe0123},
		CNP:       [CNPLen]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
	}
	if opcodes[o].Payload != PayloadNone {
		for i := range payload {
			p.Payload = append(p.Payload, byte(i+1))
		}
	}
	return p
}

// poisoned returns an empty slice over memory that is not zero, so that a byte
// that is skipped shows.
func poisoned(n int) []byte {
	return bytes.Repeat([]byte{0xa5}, n)[:0]
}

// only returns p with all headers zeroed that its opcode does not have.
func only(p Packet) Packet {
	s := opcodes[p.BTH.Opcode].Headers
	q := Packet{BTH: p.BTH, Payload: p.Payload}
	if s.Has(HasXRCETH) {
		q.XRCETH = p.XRCETH
	}
	if s.Has(HasDETH) {
		q.DETH = p.DETH
	}
	if s.Has(HasFETH) {
		q.FETH = p.FETH
	}
	if s.Has(HasRETH) {
		q.RETH = p.RETH
	}
	if s.Has(HasAtomicETH) {
		q.AtomicETH = p.AtomicETH
	}
	if s.Has(HasAETH) {
		q.AETH = p.AETH
	}
	if s.Has(HasAtomicAckETH) {
		q.AtomicAck = p.AtomicAck
	}
	if s.Has(HasImmDt) {
		q.Imm = p.Imm
	}
	if s.Has(HasIETH) {
		q.IETH = p.IETH
	}
	if s.Has(HasCNP) {
		q.CNP = p.CNP
	}
	return q
}

func equalPackets(a, b Packet) bool {
	if !bytes.Equal(a.Payload, b.Payload) {
		return false
	}
	a.Payload, b.Payload = nil, nil
	return fmt.Sprint(a) == fmt.Sprint(b)
}

// Every header has the layout of IBTA 9.2, 9.3, A14 (XRCETH), A17 (CNP) and A19
// (FETH).
func TestEveryHeaderBytes(t *testing.T) {
	t.Parallel()
	// The BTH of testPacket without opcode, then what follows it, by the
	// specification's layouts.
	const bth = "c08123 fffedcba ffabcdef"
	const (
		xrceth    = "f1c0ffee"
		deth      = "80010203 f2d00d1e"
		feth      = "ffffffd3"
		reth      = "f1e2d3c4b5a69788 90817263 80000001"
		atomic    = "e1e2d3c4b5a69788 a0817263 8070605040302010 9181716151413121"
		aeth      = "62feed01"
		atomicAck = "b8a7968574635241"
		imm       = "deadbe01"
		ieth      = "cafe0123"
		cnp       = "0102030405060708090a0b0c0d0e0f10"
	)
	tests := map[Opcode]string{
		RCSendFirst: "", RCSendLastImm: imm, RCSendOnlyInv: ieth, RCWriteFirst: reth, RCWriteOnlyImm: reth + imm,
		RCReadRequest: reth, RCReadResponseMiddle: "", RCReadResponseOnly: aeth, RCAcknowledge: aeth,
		RCAtomicAcknowledge: aeth + atomicAck, RCCompareSwap: atomic, RCFlush: feth + reth, RCAtomicWrite: reth,
		UDSendOnly: deth, UDSendOnlyImm: deth + imm, CNP: cnp,
		XRCSendMiddle: xrceth, XRCWriteOnlyImm: xrceth + reth + imm, XRCFetchAdd: xrceth + atomic,
		XRCFlush: xrceth + feth + reth, XRCSendLastInv: xrceth + ieth, XRCAtomicAcknowledge: aeth + atomicAck,
	}
	for o, extended := range tests {
		want, err := hex.DecodeString(strings.ReplaceAll(fmt.Sprintf("%02x", uint8(o))+bth+extended, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		p := testPacket(o, 0)
		if got := p.AppendHeaders(poisoned(100)); !bytes.Equal(got, want) {
			t.Errorf("%v:\n got %x\nwant %x", o, got, want)
		}
		if p.HeaderLen() != len(want) {
			t.Errorf("%v: HeaderLen() = %d, want %d", o, p.HeaderLen(), len(want))
		}
	}
}

// Every packet decodes to what it was encoded from. Up to three bytes of pad,
// which are zero, make its length a multiple of 4 (IBTA 9.2).
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, o := range knownOpcodes() {
		for n := range 10 {
			p := testPacket(o, n)
			b := p.AppendTo(poisoned(200))
			if want := p.HeaderLen() + (len(p.Payload)+3)/4*4; len(b) != want {
				t.Fatalf("%v, payload %d: %d bytes, want %d", o, n, len(b), want)
			}
			if pad := b[len(b)-int(p.BTH.PadCount):]; bytes.Contains(pad, []byte{0xa5}) {
				t.Errorf("%v, payload %d: pad is %x, not zero", o, n, pad)
			}
			b = append(b, 1, 2, 3, 4) // some ICRC
			var q Packet
			if err := q.Parse(b); err != nil {
				t.Fatalf("%v, payload %d: %v", o, n, err)
			}
			if want := only(*p); !equalPackets(q, want) {
				t.Errorf("%v, payload %d:\n got %+v\nwant %+v", o, n, q, want)
			}
			if cap(q.Payload) != len(q.Payload) {
				t.Errorf("%v: appending to the payload would overwrite the datagram", o)
			}
			if again := q.AppendTo(nil); !bytes.Equal(again, b[:len(b)-4]) {
				t.Errorf("%v, payload %d:\n got %x\nwant %x", o, n, again, b)
			}
		}
	}
}

// A packet that is shorter than its headers say is dropped (IBTA 9.6).
func TestEveryTruncation(t *testing.T) {
	t.Parallel()
	for _, o := range knownOpcodes() {
		whole := append(testPacket(o, 5).AppendTo(nil), 0, 0, 0, 0)
		info, _ := o.Info()
		for n := range len(whole) {
			// A copy of the exact size: reading past the end would
			// panic.
			b := append(make([]byte, 0, n), whole[:n]...)
			var p Packet
			err := p.Parse(b[:n:n])
			want := ErrLength
			switch {
			case n < info.HeaderLen+ICRCLen:
				want = ErrShort
			case info.Payload != PayloadNone && n < info.HeaderLen+3+ICRCLen:
				want = ErrPad // five bytes of payload have three of pad
			case n%4 == 0:
				want = nil
			}
			if !errors.Is(err, want) {
				t.Errorf("%v, %d of %d bytes: %v, want %v", o, n, len(whole), err, want)
			}
		}
	}
}

// IBTA 9.6: what does not pass these checks is no packet and is dropped.
func TestParseErrors(t *testing.T) {
	t.Parallel()
	packet := func(o Opcode, n int, change func(b []byte)) []byte {
		b := append(testPacket(o, n).AppendTo(nil), 0, 0, 0, 0)
		change(b)
		return b
	}
	tests := []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, ErrShort},
		{"no ICRC", make([]byte, 12), ErrShort},
		{"reliable datagram", packet(RCSendOnly, 4, func(b []byte) { b[0] = 0x44 }), ErrOpcode},
		{"resync", packet(RCSendOnly, 4, func(b []byte) { b[0] = 0x15 }), ErrOpcode},
		{"UC send with invalidate", packet(RCSendOnlyInv, 4, func(b []byte) { b[0] = 0x37 }), ErrOpcode},
		{"UD send first", packet(UDSendOnly, 4, func(b []byte) { b[0] = 0x60 }), ErrOpcode},
		{"version 1", packet(RCSendOnly, 4, func(b []byte) { b[1] |= 1 }), ErrVersion},
		{"version 8", packet(RCSendOnly, 4, func(b []byte) { b[1] |= 8 }), ErrVersion},
		{"pad without payload", packet(RCSendOnly, 0, func(b []byte) { b[1] |= 1 << 4 }), ErrPad},
		{"pad in an ACK", packet(RCAcknowledge, 0, func(b []byte) { b[1] |= 3 << 4 }), ErrPad},
		{"no pad where one belongs", append(packet(RCSendOnly, 4, func([]byte) {}), 0), ErrLength},
		{"more than any MTU", packet(RCSendOnly, MaxPacketLen, func([]byte) {}), ErrLength},
		{"largest", packet(XRCWriteOnlyImm, 4096, func([]byte) {}), nil},
		{"pad that is not zero", packet(RCSendOnly, 5, func(b []byte) { b[18] = 7 }), nil},
	}
	for _, tt := range tests {
		var p Packet
		if err := p.Parse(tt.b); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

// Linux ignores what follows the headers of an opcode without payload.
func TestStrayPayload(t *testing.T) {
	t.Parallel()
	for _, o := range knownOpcodes() {
		if opcodes[o].Payload != PayloadNone {
			continue
		}
		p := testPacket(o, 0)
		b := append(p.AppendTo(nil), make([]byte, 8+ICRCLen)...)
		var q Packet
		q.Payload = []byte("of an earlier packet")
		if err := q.Parse(b); err != nil {
			t.Errorf("%v: %v", o, err)
		} else if len(q.Payload) != 0 {
			t.Errorf("%v: payload of %d bytes", o, len(q.Payload))
		}
	}
}

func TestUnknownOpcodeHeaders(t *testing.T) {
	t.Parallel()
	p := testPacket(Opcode(0xff), 0)
	if n := p.HeaderLen(); n != 0 {
		t.Errorf("HeaderLen() = %d", n)
	}
	if b := p.AppendHeaders(nil); len(b) != BTHLen {
		t.Errorf("AppendHeaders: %d bytes, want a BTH", len(b))
	}
}

// Values that do not fit their fields do not spill into the fields beside them.
func TestFieldsAreMasked(t *testing.T) {
	t.Parallel()
	p := Packet{
		BTH: BTH{
			Opcode: RCSendOnly, PadCount: 0xfc, Version: 0xf0, Reserved6: 0xc0, DestQPN: 0xff000000, Reserved7: 0x80,
			PSN: 0xff000000,
		},
		XRCETH: XRCETH{SRQN: 0xff000000},
		DETH:   DETH{SrcQPN: 0xff000000},
		FETH:   FETH{Type: 0xf0, Level: 0xfc},
		AETH:   AETH{MSN: 0xff000000},
	}
	for _, o := range []Opcode{RCSendOnly, RCFlush, RCAcknowledge, UDSendOnly, XRCFlush} {
		p.BTH.Opcode = o
		b := p.AppendHeaders(nil)
		if want := append([]byte{byte(o)}, make([]byte, len(b)-1)...); !bytes.Equal(b, want) {
			t.Errorf("%v: %x, want zeros", o, b)
		}
	}
}

func TestCodecDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, MaxPacketLen)
	for _, o := range knownOpcodes() {
		p := testPacket(o, 1021)
		b := append(p.AppendTo(nil), 0, 0, 0, 0)
		var q Packet
		if n := testing.AllocsPerRun(100, func() {
			if err := q.Parse(b); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v: Parse allocates %v times", o, n)
		}
		if n := testing.AllocsPerRun(100, func() { buf = q.AppendTo(buf[:0]) }); n != 0 {
			t.Errorf("%v: AppendTo allocates %v times", o, n)
		}
	}
	bad := [][]byte{nil, make([]byte, 12), bytes.Repeat([]byte{0xff}, 64), append([]byte{4, 1}, make([]byte, 14)...)}
	var q Packet
	if n := testing.AllocsPerRun(100, func() {
		for _, b := range bad {
			if q.Parse(b) == nil {
				t.Fatal("no error")
			}
		}
	}); n != 0 {
		t.Errorf("Parse of bad packets allocates %v times", n)
	}
}
