package rocev2

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/gosoftroce/rocev2/internal/captures"
)

// readCapture returns the IP datagrams of a capture file of Ethernet frames,
// without padding.
func readCapture(t testing.TB, name string) [][]byte {
	t.Helper()
	frames, _ := captures.File(t, name)
	for i, frame := range frames {
		b := frame[14:]
		switch binary.BigEndian.Uint16(frame[12:]) {
		case 0x0800:
			b = b[:binary.BigEndian.Uint16(b[2:])]
		case 0x86dd:
			b = b[:40+int(binary.BigEndian.Uint16(b[4:]))]
		default:
			t.Fatalf("EtherType %x", frame[12:14])
		}
		frames[i] = b
	}
	return frames
}

func goldenCaptures(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/golden/*.pcap")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 15 {
		t.Fatalf("%d golden captures, want 15", len(names))
	}
	return names
}

// Every packet of the kernels decodes, has the ICRC that we compute, with its
// Identification known or not, and encodes to the same bytes.
func TestGoldenCaptures(t *testing.T) {
	t.Parallel()
	for _, name := range goldenCaptures(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			datagrams := readCapture(t, name)
			if len(datagrams) < 6 {
				t.Errorf("only %d datagrams", len(datagrams))
			}
			for i, b := range datagrams {
				_, _, packet := openDatagram(t, b)
				checkDatagram(t, b, Opcode(packet[0]), binary.LittleEndian.Uint32(packet[len(packet)-4:]))
				if t.Failed() {
					t.Fatalf("frame %d", i+1)
				}
			}
		})
	}
}
