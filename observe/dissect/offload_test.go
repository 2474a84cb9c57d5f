package dissect_test

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rocev2"
)

// buffer returns packets of one size as segmentation offload has them: in one
// datagram, sealed for the Identifications that they will have.
func buffer(src, dst netip.Addr, id uint16, count, n, last int) []byte {
	var all []byte
	for i := range count {
		op, size := rocev2.RCSendMiddle, n
		if i == count-1 {
			op, size = rocev2.RCSendLast, last
		}
		payload := make([]byte, size)
		for j := range payload {
			payload[j] = 0xff // looks like P_Keys
		}
		all = append(all, seal(src, dst, id+uint16(i), &rocev2.Packet{
			BTH: rocev2.BTH{Opcode: op, PKey: rocev2.DefaultPKey, DestQPN: 5, PSN: rocev2.PSN(i)}, Payload: payload,
		})...)
	}
	return datagram(src, dst, id, all)
}

// A buffer of segmentation offload is taken apart, and every ICRC checked.
func TestOffload(t *testing.T) {
	t.Parallel()
	for _, hosts := range [][2]netip.Addr{{hostA, hostB}, {six1, six2}} {
		for _, id := range []uint16{0, 7, 0xfffe} {
			for _, size := range [][2]int{{4096, 4096}, {1024, 100}, {256, 4}} {
				c := &traffic{}
				c.add(dissect.LinkRaw, buffer(hosts[0], hosts[1], id, 9, size[0], size[1]))
				capture := dissect.New(c, dissect.Limits{})
				for i := range 9 {
					p, err := capture.Next()
					if err != nil {
						t.Fatalf("%v, packet %d: %v", size, i, err)
					}
					if p.ICRC != dissect.ICRCGood || p.Segment != i+1 || p.Segments != 9 || p.Wire.BTH.PSN != rocev2.PSN(i) || p.Number != 1 {
						t.Errorf("%v, packet %d: %s", size, i, dissect.Line(p))
					}
				}
				if _, err := capture.Next(); !errors.Is(err, io.EOF) {
					t.Errorf("%v: a tenth packet", size)
				}
			}
		}
	}
}

// One damaged segment is bad, and no other.
func TestOffloadDamaged(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	b := buffer(hostA, hostB, 0, 4, 1024, 1024)
	b[28+2*1040+100] ^= 1
	c.add(dissect.LinkRaw, b)
	got, _ := c.run(t)
	var bad []string
	for i, p := range got {
		if strings.Contains(p.line, "BAD ICRC") {
			bad = append(bad, fmt.Sprint(i))
		}
	}
	if len(got) != 4 || strings.Join(bad, " ") != "2" {
		t.Errorf("%d packets, bad: %v; want 4, and number 2", len(got), bad)
	}
}

// A capture with a short snapshot length shows headers, and no verdict.
func TestCut(t *testing.T) {
	t.Parallel()
	whole := datagram(hostA, hostB, 3, seal(hostA, hostB, 3, &rocev2.Packet{
		BTH: rocev2.BTH{Opcode: rocev2.RCWriteOnly, DestQPN: 5, PSN: 6}, RETH: rocev2.RETH{VA: 1, RKey: 2, Length: 1000}, Payload: make([]byte, 1000),
	}))
	for n := range whole {
		c := &traffic{}
		c.add(dissect.LinkRaw, whole[:n])
		capture := dissect.New(c, dissect.Limits{})
		p, err := capture.Next()
		switch {
		case n < 28:
			if err == nil {
				t.Errorf("%d bytes: %s", n, dissect.Line(p))
			}
		case err != nil:
			t.Errorf("%d bytes: %v", n, err)
		case p.ICRC != dissect.ICRCUnknown || !p.Cut || p.Length != 1032:
			t.Errorf("%d bytes: %s", n, dissect.Line(p))
		case n < 28+28 && p.Err == nil:
			t.Errorf("%d bytes: headers that were not captured: %s", n, dissect.Line(p))
		case n >= 28+28 && (p.Err != nil || p.PayloadLen != 1000 || p.Wire.RETH.RKey != 2 || len(p.Wire.Payload) != min(n-56, 1000)):
			t.Errorf("%d bytes: %s, %d of payload", n, dissect.Line(p), len(p.Wire.Payload))
		}
	}
}

// What is kept is bounded, however many connections and messages a capture has.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 50
	flows := dissect.NewFlows(dissect.Limits{Connections: limit, Memory: 1 << 20})
	c := &traffic{}
	capture := dissect.New(c, dissect.Limits{})
	for i := range 20000 {
		c.packet(hostA, hostB, rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCReadRequest, DestQPN: rocev2.QPN(i % 1000), PSN: rocev2.PSN(i * 77)}, RETH: rocev2.RETH{Length: 1 << 31}})
		p, err := capture.Next()
		if err != nil {
			t.Fatal(err)
		}
		flows.Add(p)
		if n := len(flows.Connections()); n > limit {
			t.Fatalf("%d connections are kept", n)
		}
	}
	f := flows.Forgotten()
	kept := uint64(0)
	for _, conn := range flows.Connections() {
		kept += conn.Requests[0].Packets
	}
	if f.Counters.Packets+kept != 20000 || f.Connections < 1000 {
		t.Errorf("forgot %d connections with %d packets, kept %d packets", f.Connections, f.Counters.Packets, kept)
	}
}
