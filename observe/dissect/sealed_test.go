package dissect_test

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/psp"
)

// TestSealedClosed: of what is sealed, number, size and what is missing can be
// seen.
func TestSealedClosed(t *testing.T) {
	t.Parallel()
	c, _ := conversation(t)
	all, capture := opened(t, c, "")
	want := []string{
		"c1   SEALED GCM-128         qp 0x000020 generation 0 iv 1 len 64  [no key]",
		"c1   SEALED GCM-128         qp 0x000020 generation 0 iv 2 len 64  [no key]",
		"c2   SEALED GCM-256         qp 0x000010 generation 0 iv 1 len 60  [no key]",
		"c1   SEALED GCM-128         qp 0x000020 generation 0 iv 5 len 60  [no key]  [gap: 2 missing]",
		"c1   SEALED GCM-128         qp 0x000020 generation 0 iv 1 len 64  [no key]  [replayed: its IV has come before, receivers drop it]",
		"c1   SEALED GCM-128         qp 0x000020 generation 0 iv 5 len 60  [no key]  [replayed: its IV has come before, receivers drop it]",
		"c1   SEALED GCM-128         qp 0x000020 generation 1 iv 1 len 72  [no key]",
		"c2   SEALED GCM-256         qp 0x000010 generation 0 iv 2 len 60  [no key]",
	}
	if len(all) != len(want) {
		t.Fatalf("%d packets, want %d", len(all), len(want))
	}
	for i, p := range all {
		if !strings.HasSuffix(p.line, want[i]) {
			t.Errorf("%s\nwant %s", p.line, want[i])
		}
		if p.Malformed() || !p.Sealed.Present || p.Sealed.Opened || p.HasBTH {
			t.Errorf("%+v", p.Sealed)
		}
	}
	list := capture.Flows().Connections()
	if len(list) != 2 {
		t.Fatalf("%d connections, want one for each direction: nothing tells that they belong together", len(list))
	}
	s := list[0].Sealed[0]
	if s.Packets != 6 || s.Opened != 0 || s.Replayed != 2 || s.Missing != 2 || s.Keys != 2 || list[0].B.QPN != qpB || list[0].A.Known {
		t.Errorf("%+v", s)
	}
}

// TestSealedOpened: with the keys, what is inside is shown and analysed as any
// packet.
func TestSealedOpened(t *testing.T) {
	t.Parallel()
	c, log := conversation(t)
	all, capture := opened(t, c, log)
	want := []string{
		"c1   RC_SEND_ONLY           qp 0x000020 psn 100 len 8  #1 SEND 8 B  [opened]",
		"c1   RC_SEND_ONLY           qp 0x000020 psn 100 len 8  #1 SEND 8 B  [opened]  [retransmitted, nothing asked for it, first sent 10.0 µs before]",
		"c1   RC_ACK                 qp 0x000010 psn 100 msn 1  #1 SEND 8 B  completes #1 after 20.0 µs  [opened]",
		"c1   RC_SEND_ONLY           qp 0x000020 psn 103 len 4  #2 SEND 4 B  [opened]  [gap: 2 missing]",
		"c1   RC_SEND_ONLY           qp 0x000020 psn 100 len 8  [opened]  [replayed: its IV has come before, receivers drop it]",
		"c1   SEALED GCM-128         qp 0x000020 generation 0 iv 5 len 60  [malformed: " + dissect.ErrBadICV.Error() + "]",
		"c1   RC_SEND_ONLY           qp 0x000020 psn 104 len 16  #3 SEND 16 B  [opened]",
		"c1   RC_ACK                 qp 0x000010 psn 104 msn 1  #3 SEND 16 B  completes 2 messages to #3  rtt 10.0 µs  [opened]",
	}
	if len(all) != len(want) {
		t.Fatalf("%d packets, want %d", len(all), len(want))
	}
	for i, p := range all {
		if !strings.HasSuffix(p.line, want[i]) {
			t.Errorf("%s\nwant %s", p.line, want[i])
		}
		if p.Sealed.Opened && (p.ICRC != dissect.ICRCGood || p.Sealed.ICRC != dissect.ICRCGood || !p.Sealed.Verified) {
			t.Errorf("ICRC %v, inside %v", p.ICRC, p.Sealed.ICRC)
		}
	}
	conn := only(t, capture.Flows())
	if s := conn.Sealed[0]; s.Packets != 5 || s.Opened != 5 || s.Refused != 1 || s.Replayed != 1 || s.Missing != 2 {
		t.Errorf("%+v", s)
	}
	if s := &conn.Requests[0]; s.Retransmitted != 1 || s.Completed != 3 || s.Missing != 2 {
		t.Errorf("%+v", s.Counters)
	}
}

// TestSealedKeys: missing, wrong and partial keys; what the counters say.
func TestSealedKeys(t *testing.T) {
	t.Parallel()
	_, log := conversation(t)
	lines := strings.SplitAfter(log, "\n")
	wrong := strings.ReplaceAll(log, " 20000305", " 20000306")
	for _, c := range []struct {
		name, log                             string
		opened, noKey, wrongKey, refused, bad uint64
	}{
		{"none", "", 0, 8, 0, 0, 0},
		{"all", log, 7, 0, 0, 1, 0},
		{"all, twice and backwards", lines[3] + lines[2] + log, 7, 0, 0, 1, 0},
		{"without a line end", strings.TrimSuffix(log, "\n"), 7, 0, 0, 1, 0},
		{"cut in the last line", log[:len(log)-9], 5, 2, 0, 1, 0},
		{"lines of Windows", strings.ReplaceAll(log, "\n", "\r\n"), 7, 0, 0, 1, 0},
		{"one direction", lines[2], 5, 2, 0, 1, 0},
		{"the wrong key", wrong, 2, 0, 6, 0, 0},
		{"the address was translated", strings.ReplaceAll(log, "@192.0.2", "@10.1.1"), 7, 0, 0, 1, 0},
		{"a wrong line", "ROCEV2_PSP 0x20@192.0.2.2 00\n" + log, 7, 0, 0, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			traffic, _ := conversation(t)
			capture := dissect.New(traffic, dissect.Limits{})
			if err := capture.Keys().Follow(strings.NewReader(c.log), "keys.log"); err != nil {
				t.Fatal(err)
			}
			var stats dissect.Stats
			for {
				p, err := capture.Next()
				if err != nil {
					break
				}
				stats.Add(p)
			}
			s := stats.Sealed
			// Where no key of the address has opened others, the
			// key may be wrong.
			if c.name == "the address was translated" {
				s.Refused, s.WrongKey = s.Refused+s.WrongKey, 0
			}
			if s.Packets != 8 || s.Opened != c.opened || s.NoKey != c.noKey || s.WrongKey != c.wrongKey || s.Refused != c.refused {
				t.Errorf("%+v", s)
			}
			if problem := capture.Keys().Problem(); (problem != nil) != (c.bad > 0) {
				t.Errorf("%v", problem)
			} else if problem != nil && !strings.Contains(problem.Error(), "keys.log:1: ") {
				t.Error(problem)
			}
		})
	}
}

// TestSealedPartly: where packets between others stay closed, nothing is said
// to be missing.
func TestSealedPartly(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	b := newSealer(t, qpB, psp.GCM128)
	for i := range 6 {
		if p := sendTo(rocev2.PSN(10+i), "text"); i < 2 {
			c.packet(hostA, hostB, p)
		} else {
			c.sealed(b, hostA, hostB, p)
		}
	}
	file := &growing{}
	capture := dissect.New(c, dissect.Limits{})
	if err := capture.Keys().Follow(file, "keys.log"); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		if i == 4 {
			file.rest = []byte(b.line(hostB))
		}
		p, err := capture.Next()
		if err != nil || p.Flags != 0 || p.Sealed.Opened != (i >= 4) {
			t.Fatalf("packet %d: %v, %v", i, p, err)
		}
	}
	conn := only(t, capture.Flows())
	if s := &conn.Requests[0]; s.Packets != 4 || s.Missing != 0 || s.Messages != 4 || conn.Sealed[0].Packets != 4 || conn.Sealed[0].Opened != 2 {
		t.Errorf("%+v, %+v", s.Counters, conn.Sealed[0])
	}
}

// TestSealedGenerations: the log has one line for all keys of a direction; they
// are followed as they come, beyond the number of generations that an SPI has.
func TestSealedGenerations(t *testing.T) {
	t.Parallel()
	const keys = 300
	c := &traffic{}
	b, other := newSealer(t, qpB, psp.GCM128), newSealer(t, qpB, psp.GCM128)
	other.secret = bytes.Repeat([]byte{99}, 16) // of another connection, at the same number
	for i := range keys {
		if i > 0 {
			b.next()
		}
		c.sealed(b, hostA, hostB, sendTo(rocev2.PSN(i), "text"))
	}
	all, capture := opened(t, c, b.line(hostB)+other.line(hostB))
	for i, p := range all {
		if !p.Sealed.Opened || p.Flags != 0 || int(p.Sealed.Generation()) != i%128 {
			t.Fatalf("packet %d: %s", i, p.line)
		}
	}
	if s := only(t, capture.Flows()).Sealed[0]; len(all) != keys || s.Keys != keys || s.Missing != 0 {
		t.Errorf("%d packets, %+v", len(all), s)
	}
}

// TestSealedAmongMany: a connection whose keys were followed for long opens
// after thousands of others, too.
func TestSealedAmongMany(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	b := newSealer(t, qpB, psp.GMAC128)
	log := b.line(hostB)
	for i := range 201 {
		if i > 0 {
			b.next()
		}
		c.sealed(b, hostA, hostB, sendTo(rocev2.PSN(i), "text"))
	}
	for i := range 4100 {
		other := newSealer(t, uint32(1000+i), psp.GMAC128)
		log += other.line(hostB)
		c.sealed(other, hostA, hostB, sendTo(1, "text"))
	}
	c.sealed(b, hostA, hostB, sendTo(201, "text"))
	all, _ := opened(t, c, log)
	if last := all[len(all)-1]; !last.Sealed.Opened {
		t.Errorf("%s", last.line)
	}
}

// TestSealedLater: a log that is still written opens what comes after.
func TestSealedLater(t *testing.T) {
	t.Parallel()
	c, log := conversation(t)
	file := &growing{}
	capture := dissect.New(c, dissect.Limits{})
	if err := capture.Keys().Follow(file, "keys.log"); err != nil {
		t.Fatal(err)
	}
	// The third packet is of the other direction, whose line is not whole
	// yet; that of the eighth is.
	second := strings.LastIndex(log, "ROCEV2_PSP")
	parts := []string{"", log[:second], log[second : len(log)-3], log[len(log)-3:], "", "", "", ""}
	for i, part := range parts {
		file.rest = append(file.rest, part...)
		p, err := capture.Next()
		if err != nil {
			t.Fatal(err)
		}
		if p.Sealed.Opened != (i != 0 && i != 2 && i != 5) {
			t.Errorf("packet %d: opened %v with %d keys", i, p.Sealed.Opened, capture.Keys().Len())
		}
	}
	if n := capture.Keys().Len(); n != 2 {
		t.Errorf("%d keys", n)
	}
}

// growing is a file that is still written.
type growing struct{ rest []byte }

func (g *growing) Read(b []byte) (int, error) {
	n := copy(b, g.rest)
	g.rest = g.rest[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// TestSealedVersions: every version opens; those that do not encrypt are read
// without a key, and said not to be verified.
func TestSealedVersions(t *testing.T) {
	t.Parallel()
	for v := psp.GCM128; v <= psp.GMAC256; v++ {
		for _, hosts := range [][2]netip.Addr{{hostA, hostB}, {six1, six2}} {
			for _, with := range []bool{true, false} {
				s := newSealer(t, qpB, v)
				c := &traffic{}
				c.sealed(s, hosts[0], hosts[1], sendTo(7, "text"))
				log := ""
				if with {
					log = s.line(hosts[1])
				}
				all, _ := opened(t, c, log)
				p := all[0]
				if p.Sealed.Version != v || p.Sealed.Opened != (with || !v.Encrypts()) || p.Sealed.Verified != with {
					t.Errorf("%v, key %v: %s", v, with, p.line)
				}
				if p.Sealed.Opened && (p.Sealed.ICRC != dissect.ICRCGood || p.Wire.BTH.PSN != 7) {
					t.Errorf("%v: ICRC %v, %s", v, p.Sealed.ICRC, p.line)
				}
			}
		}
	}
}

// TestSealedOffload: buffers that the network adapter cuts are taken apart,
// with keys and without.
func TestSealedOffload(t *testing.T) {
	t.Parallel()
	for _, segment := range []int{0, 16 + 8 + 12 + 4 + 4 + 16} {
		for _, with := range []bool{true, false} {
			s := newSealer(t, qpB, psp.GCM128)
			var all []byte
			for i := range 5 {
				all = append(all, s.seal(hostA, hostB, sendTo(rocev2.PSN(20+i), "four"))...)
			}
			last := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, DestQPN: qpB, PSN: 25}}
			all = append(all, s.seal(hostA, hostB, last)...)
			c := &traffic{}
			c.add(dissect.LinkRaw, datagram(hostA, hostB, 3, all))
			c.frames[0].Segment = segment
			log := ""
			if with {
				log = s.line(hostB)
			}
			got, _ := opened(t, c, log)
			if len(got) != 6 {
				t.Fatalf("%d packets", len(got))
			}
			for i, p := range got {
				if p.Sealed.IV != uint64(i+1) || p.Sealed.Opened != with || p.Segment != i+1 || p.Segments != 6 || p.Flags != 0 {
					t.Errorf("packet %d: %s", i, p.line)
				}
				if with && (p.Wire.BTH.PSN != rocev2.PSN(20+i) || p.Sealed.ICRC != dissect.ICRCGood) {
					t.Errorf("packet %d: %s", i, p.line)
				}
			}
		}
	}
}

// TestAppendPlain: an opened packet can be written as one in clear, whose ICRC
// and checksums fit.
func TestAppendPlain(t *testing.T) {
	t.Parallel()
	for _, hosts := range [][2]netip.Addr{{hostA, hostB}, {six1, six2}} {
		s := newSealer(t, qpB, psp.GCM256)
		c := &traffic{}
		c.sealed(s, hosts[0], hosts[1], sendTo(7, "some text"))
		c.frames[0].Data[1] |= 2 // the network says something in the header
		capture := dissect.New(c, dissect.Limits{})
		capture.Keys().Add([]byte(s.line(hosts[1])), "keys")
		p, err := capture.Next()
		if err != nil {
			t.Fatal(err)
		}
		plain := p.AppendPlain(nil)
		again := &traffic{}
		again.add(dissect.LinkRaw, plain)
		got, _ := opened(t, again, "")
		if got[0].Sealed.Present || got[0].ICRC != dissect.ICRCGood || got[0].Wire.BTH.PSN != 7 || !bytes.HasPrefix(got[0].Wire.Payload, []byte("some text")) {
			t.Errorf("%s", got[0].line)
		}
		packet := gopacket.NewPacket(plain, map[bool]gopacket.Decoder{true: layers.LayerTypeIPv4, false: layers.LayerTypeIPv6}[hosts[0].Is4()], gopacket.Default)
		udp := packet.TransportLayer().(*layers.UDP)
		sum := udp.Checksum
		if err := udp.SetNetworkLayerForChecksum(packet.NetworkLayer()); err != nil {
			t.Fatal(err)
		}
		b := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{ComputeChecksums: true}, udp, gopacket.Payload(udp.Payload)); err != nil {
			t.Fatal(err)
		}
		if udp.Checksum != sum {
			t.Errorf("UDP checksum %#x, want %#x", sum, udp.Checksum)
		}
		if v4, ok := packet.NetworkLayer().(*layers.IPv4); ok {
			sum := v4.Checksum
			if err := v4.SerializeTo(gopacket.NewSerializeBuffer(), gopacket.SerializeOptions{ComputeChecksums: true}); err != nil || v4.Checksum != sum {
				t.Errorf("IP checksum %#x, want %#x: %v", sum, v4.Checksum, err)
			}
		}
		if c, _ := conversation(t); true {
			p, err := dissect.New(c, dissect.Limits{}).Next()
			if err != nil || p.AppendPlain(nil) != nil {
				t.Error("a packet that is not opened was written")
			}
		}
	}
}

// TestSealedMalformed: what no receiver opens says why.
func TestSealedMalformed(t *testing.T) {
	t.Parallel()
	s := newSealer(t, qpB, psp.GCM128)
	good := func() []byte { return s.seal(hostA, hostB, sendTo(1, "text")) }
	change := func(f func([]byte)) []byte { b := good(); f(b); return b }
	noUDP := s.key.Seal(nil, &psp.Header{Next: psp.UDP, SPI: s.spi, IV: 99}, nil, []byte("short"))
	log := s.line(hostB)
	for want, b := range map[string][]byte{
		"shorter than its header":      good()[:20],
		"no PSP packet":                change(func(b []byte) { b[3] &^= 1 }),
		"not known":                    change(func(b []byte) { b[3] |= 15 << 2 }),
		"no key]":                      change(func(b []byte) { b[7]++ }),
		"no key fits]":                 change(func(b []byte) { b[len(b)-1]++ }),
		errNoPacket:                    noUDP,
		"[opened]":                     good(),
		"qp 0x000020 psn 1 len 4  #1 ": good(),
	} {
		c := &traffic{}
		c.add(dissect.LinkRaw, datagram(hostA, hostB, 1, b))
		got, _ := opened(t, c, log)
		if len(got) != 1 || !strings.Contains(got[0].line, want) {
			t.Errorf("want %q in %v", want, got)
		}
	}
	for cut, want := range map[int]string{10: "cut at 10 of 60 bytes", 20: "cut at 20 of 60 bytes", 59: "cut at 59 of 60 bytes"} {
		c := &traffic{}
		ip := datagram(hostA, hostB, 1, good())
		c.add(dissect.LinkRaw, ip[:28+cut])
		c.frames[0].Length = len(ip)
		got, _ := opened(t, c, log)
		if len(got) != 1 || cut > 16 && !strings.Contains(got[0].line, want) || got[0].Sealed.Opened {
			t.Errorf("cut at %d: %v", cut, got)
		}
	}
}

const errNoPacket = "no RoCEv2 packet over UDP"

// TestSealedFilters: filters know what can be seen without a key.
func TestSealedFilters(t *testing.T) {
	t.Parallel()
	for filter, want := range map[string]int{
		"sealed": 8, "sealed and opened": 7, "spi=0x20": 5, "spi 0x01000020": 1, "iv>4": 2, "generation 1": 1, "replayed": 1,
		"not sealed": 0, "destqp=0x20 and opened": 5, "qp=0x10": 6, "malformed": 1, "retransmitted": 1,
	} {
		f, err := dissect.ParseFilter(filter)
		if err != nil {
			t.Fatal(err)
		}
		c, log := conversation(t)
		capture := dissect.New(c, dissect.Limits{})
		capture.Keys().Add([]byte(log), "keys")
		n := 0
		for {
			p, err := capture.Next()
			if err != nil {
				break
			}
			if f.Match(p) {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d packets, want %d", filter, n, want)
		}
	}
}

// TestKeysAreBounded: neither long lines nor many keys take memory without
// bound, and none of them hides a key.
func TestKeysAreBounded(t *testing.T) {
	t.Parallel()
	s := newSealer(t, qpB, psp.GCM128)
	c := &traffic{}
	c.sealed(s, hostA, hostB, sendTo(1, "text"))
	capture := dissect.New(c, dissect.Limits{})
	long := strings.Repeat("x", 64<<20)
	keys := capture.Keys()
	if err := keys.Follow(strings.NewReader("ROCEV2_PSP "+long+"\n"+long+"\n"+s.line(hostB)), "keys.log"); err != nil {
		t.Fatal(err)
	}
	if err := keys.Problem(); err == nil || !strings.Contains(err.Error(), "keys.log:1: ") || len(err.Error()) > 200 {
		t.Errorf("%.300v", err)
	}
	var many strings.Builder
	for i := range 200 { // of one SPI
		fmt.Fprintf(&many, "ROCEV2_PSP 0x00000077@192.0.2.9 %032x\n", i)
	}
	keys.Add([]byte(many.String()), "many")
	if n := keys.Len(); n != 17 {
		t.Errorf("%d keys are kept of 201", n)
	}
	p, err := capture.Next()
	if err != nil || !p.Sealed.Opened {
		t.Errorf("%v, %v", p, err)
	}
}

// TestSealedBesideClear: a connection that connection management has made is
// one, with both directions, though nothing is opened.
func TestSealedBesideClear(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	c.packet(hostA, hostB, sendTo(50, "hello"))
	c.packet(hostB, hostA, ackTo(50))
	toB, toA := newSealer(t, qpB, psp.GCM128), newSealer(t, qpA, psp.GCM128)
	for range 3 {
		c.sealed(toB, hostA, hostB, sendTo(51, "secret"))
		c.sealed(toA, hostB, hostA, ackTo(51))
	}
	_, capture := opened(t, c, "")
	conn := only(t, capture.Flows())
	if conn.Sealed[0].Packets != 3 || conn.Sealed[1].Packets != 3 || !conn.A.Known || conn.A.QPN != qpA {
		t.Errorf("%+v", conn)
	}
}
