package rocev2

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzPacket: what parses encodes to the same bytes, as far as they mean
// anything.
func FuzzPacket(f *testing.F) {
	for _, o := range knownOpcodes() {
		f.Add(append(testPacket(o, 5).AppendTo(nil), 1, 2, 3, 4))
	}
	for _, name := range goldenCaptures(f) {
		_, _, packet := openDatagram(f, readCapture(f, name)[0])
		f.Add(packet)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		var p Packet
		err := p.Parse(b)
		if !bytes.Equal(b, before) {
			t.Fatal("Parse changed the datagram")
		}
		if err != nil {
			return
		}
		info, ok := p.BTH.Opcode.Info()
		if !ok || p.BTH.Version != 0 {
			t.Fatalf("accepted %v, version %d", p.BTH.Opcode, p.BTH.Version)
		}
		if info.Payload == PayloadNone {
			if len(p.Payload) != 0 {
				t.Fatalf("%v with payload", p.BTH.Opcode)
			}
			// The pad count of such a packet counts ignored bytes.
			before[1] &^= 0x30
			before = before[:info.HeaderLen]
		} else {
			before = before[:len(before)-ICRCLen]
			clear(before[info.HeaderLen+len(p.Payload):])
		}
		if got := p.AppendTo(poisoned(len(b))); !bytes.Equal(got, before) {
			t.Fatalf("%v:\n got %x\nwant %x", p.BTH.Opcode, got, before)
		}
	})
}

// FuzzRecover: Recover is right exactly when Verify is, for the Identification
// that it returns; and it finds the Identification that a packet was sealed
// with. So a packet damaged on its way is noticed, unless it is also right for
// another Identification.
func FuzzRecover(f *testing.F) {
	for _, o := range []Opcode{RCSendOnly, RCAcknowledge, RCFlush, CNP} {
		sealed := testFlow4.Seal(0x1234, testPacket(o, 64).AppendTo(nil))
		f.Add(sealed, uint16(0x1234), uint16(0), byte(0))
		f.Add(sealed, uint16(0), uint16(8), byte(1))
	}
	for _, name := range goldenCaptures(f) {
		_, ipID, packet := openDatagram(f, readCapture(f, name)[0])
		f.Add(packet, ipID, uint16(20), byte(0x80))
	}
	f.Fuzz(func(t *testing.T, b []byte, ipID, at uint16, flip byte) {
		for _, flow := range []Flow{testFlow4, testFlow6} {
			if id, ok := flow.Recover(b); ok && !flow.Verify(id, b) {
				t.Fatalf("Identification %#x does not verify", id)
			}
			if len(b) < BTHLen || len(b)%4 != 0 || len(b) > MaxPacketLen-ICRCLen {
				continue
			}
			for _, sealed := range [][]byte{flow.Seal(ipID, bytes.Clone(b)), flow.SealKernelFlush(ipID, bytes.Clone(b))} {
				checkRecover(t, &flow, sealed, ipID, int(at)%len(sealed), flip)
			}
		}
	})
}

func checkRecover(t *testing.T, flow *Flow, sealed []byte, ipID uint16, at int, flip byte) {
	t.Helper()
	if !flow.Verify(ipID, sealed) {
		t.Fatal("sealed packet does not verify")
	}
	id, ok := flow.Recover(sealed)
	// A FLUSH may be right for one Identification by the standard and for
	// another one by Linux.
	if flow.kind == flowIPv6 {
		ipID = 0
	}
	if !ok || id != ipID && !(isFlush(sealed[:len(sealed)-4]) && flow.Verify(id, sealed)) {
		t.Fatalf("Identification %#x: recovered %#x, %t", ipID, id, ok)
	}
	if at == 4 || flip == 0 {
		return
	}
	flush := isFlush(sealed)
	sealed[at] ^= flip
	if flush || isFlush(sealed) {
		return // two ways to be right: Verify agreeing with Recover is all that can be asked
	}
	// A change within one byte is a burst of at most 8 bits, which a CRC of
	// 32 bits always notices, and which with the Identification's 16 bits
	// unknown could pass only as a change of that field.
	if flow.Verify(ipID, sealed) {
		t.Fatalf("byte %d of %d changed by %#x: verifies", at, len(sealed), flip)
	}
	if id, ok := flow.Recover(sealed); ok && id == ipID {
		t.Fatalf("byte %d of %d changed by %#x: recovers the same Identification", at, len(sealed), flip)
	}
}

// FuzzDatagram: nothing that a raw socket delivers panics, and the two ways to
// check an ICRC agree.
func FuzzDatagram(f *testing.F) {
	for _, name := range goldenCaptures(f) {
		for i, b := range readCapture(f, name) {
			if i < 3 {
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		VerifyDatagram(b)
		if len(b) < 28 || b[0] != 0x45 || binary.BigEndian.Uint16(b[6:]) != 0x4000 || b[9] != 17 {
			return
		}
		if len(b) > 0xffff {
			return
		}
		// Make both length fields say what there is, so that a Flow
		// describes it.
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		binary.BigEndian.PutUint16(b[24:], uint16(len(b)-20))
		ok := VerifyDatagram(b)
		flow, ipID, packet := openDatagram(t, b)
		if got := flow.Verify(ipID, packet); got != ok {
			t.Fatalf("Flow.Verify %t, VerifyDatagram %t", got, ok)
		}
	})
}
