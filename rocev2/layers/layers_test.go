package layers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/gosoftroce/rocev2/internal/captures"
	"github.com/gosoftroce/rocev2/rocev2"
)

// summary is one line of testdata/golden.txt.
type summary struct {
	capture     string
	opcode      rocev2.Opcode
	packets     int
	first, last rocev2.PSN
	psns        uint64
	destQPNs    uint64
	ackReqs     int
	pads        int
	msns        uint64
	lengths     uint64
	srcQPNs     uint64
}

func readSummaries(t *testing.T) []summary {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []summary
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var s summary
		var opcode uint8
		_, err := fmt.Sscan(line, &s.capture, &opcode, &s.packets, &s.first, &s.last, &s.psns, &s.destQPNs, &s.ackReqs,
			&s.pads, &s.msns, &s.lengths, &s.srcQPNs)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		s.opcode = rocev2.Opcode(opcode)
		all = append(all, s)
	}
	return all
}

// add counts a packet in.
func (s *summary) add(p gopacket.Packet) {
	bth := p.Layer(LayerTypeRoCEv2).(*RoCEv2)
	if s.packets == 0 {
		s.first = bth.PSN
	}
	s.packets++
	s.last = bth.PSN
	s.psns += uint64(bth.PSN)
	s.destQPNs += uint64(bth.DestQPN)
	s.pads += int(bth.PadCount)
	if bth.AckReq {
		s.ackReqs++
	}
	if aeth, ok := p.Layer(LayerTypeAETH).(*AETH); ok {
		s.msns += uint64(aeth.MSN)
	}
	if reth, ok := p.Layer(LayerTypeRETH).(*RETH); ok {
		s.lengths += uint64(reth.Length)
	}
	if deth, ok := p.Layer(LayerTypeDETH).(*DETH); ok {
		s.srcQPNs += uint64(deth.SrcQPN)
	}
}

func readPackets(t testing.TB, name string) []gopacket.Packet {
	t.Helper()
	frames, link := captures.File(t, name)
	var packets []gopacket.Packet
	for _, frame := range frames {
		packets = append(packets, gopacket.NewPacket(frame, link, gopacket.Default))
	}
	return packets
}

// The captures decode to what another dissector finds in them.
func TestGoldenCaptures(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("../testdata/golden/*.pcap")
	if err != nil || len(names) != 15 {
		t.Fatalf("%d golden captures, %v; want 15", len(names), err)
	}
	var got []summary
	for _, name := range names {
		byOpcode := map[rocev2.Opcode]*summary{}
		capture := strings.TrimSuffix(filepath.Base(name), ".pcap")
		for i, p := range readPackets(t, name) {
			if failure := p.ErrorLayer(); failure != nil {
				t.Fatalf("%s, frame %d: %v", capture, i+1, failure.Error())
			}
			if err := CheckICRC(p); err != nil {
				t.Errorf("%s, frame %d: %v", capture, i+1, err)
			}
			checkContents(t, p)
			opcode := p.Layer(LayerTypeRoCEv2).(*RoCEv2).Opcode
			s := byOpcode[opcode]
			if s == nil {
				s = &summary{capture: capture, opcode: opcode}
				byOpcode[opcode] = s
			}
			s.add(p)
		}
		for _, s := range byOpcode {
			got = append(got, *s)
		}
	}
	want := readSummaries(t)
	for _, s := range want {
		if !slices.Contains(got, s) {
			t.Errorf("missing %+v", s)
		}
	}
	for _, s := range got {
		if !slices.Contains(want, s) {
			t.Errorf("got     %+v", s)
		}
	}
}

// checkContents checks that the layers after UDP are the UDP payload, cut where
// one header ends and the next begins.
func checkContents(t *testing.T, p gopacket.Packet) {
	t.Helper()
	rest := p.TransportLayer().LayerPayload()
	if !bytes.Equal(rest, p.TransportLayer().(*layers.UDP).Payload) {
		t.Fatal("no UDP payload")
	}
	for _, layer := range p.Layers() {
		if layer.LayerType() < LayerTypeRoCEv2 && layer.LayerType() != gopacket.LayerTypePayload {
			continue
		}
		contents := layer.LayerContents()
		if !bytes.HasPrefix(rest, contents) {
			t.Fatalf("%v: %x is not what comes next in %x", layer.LayerType(), contents, rest)
		}
		rest = rest[len(contents):]
		if after := layer.LayerPayload(); after != nil && !bytes.Equal(after, rest) {
			t.Fatalf("%v: payload %x, want %x", layer.LayerType(), after, rest)
		}
	}
	if len(rest) != 0 {
		t.Fatalf("bytes in no layer: %x", rest)
	}
}

func TestEveryOpcode(t *testing.T) {
	t.Parallel()
	want := map[rocev2.Opcode]string{
		rocev2.RCSendFirst:          "RoCEv2 Payload ICRC",
		rocev2.RCSendOnlyImm:        "RoCEv2 ImmDt Payload ICRC",
		rocev2.RCSendLastInv:        "RoCEv2 IETH Payload ICRC",
		rocev2.RCWriteOnlyImm:       "RoCEv2 RETH ImmDt Payload ICRC",
		rocev2.RCReadRequest:        "RoCEv2 RETH ICRC",
		rocev2.RCAtomicAcknowledge:  "RoCEv2 AETH AtomicAckETH ICRC",
		rocev2.RCCompareSwap:        "RoCEv2 AtomicETH ICRC",
		rocev2.RCFlush:              "RoCEv2 FETH RETH ICRC",
		rocev2.UCWriteFirst:         "RoCEv2 RETH Payload ICRC",
		rocev2.UDSendOnlyImm:        "RoCEv2 DETH ImmDt Payload ICRC",
		rocev2.CNP:                  "RoCEv2 CNP ICRC",
		rocev2.XRCFlush:             "RoCEv2 XRCETH FETH RETH ICRC",
		rocev2.XRCSendOnlyInv:       "RoCEv2 XRCETH IETH Payload ICRC",
		rocev2.XRCFetchAdd:          "RoCEv2 XRCETH AtomicETH ICRC",
		rocev2.XRCReadResponseFirst: "RoCEv2 AETH Payload ICRC",
	}
	for i := range 256 {
		p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.Opcode(i)}}
		info, ok := p.BTH.Opcode.Info()
		if !ok {
			continue
		}
		if info.Payload != rocev2.PayloadNone {
			p.Payload = []byte("hello")
		}
		b := append(p.AppendTo(nil), 1, 2, 3, 4)
		decoded := gopacket.NewPacket(b, LayerTypeRoCEv2, gopacket.Default)
		var names []string
		var contents []byte
		for _, layer := range decoded.Layers() {
			names = append(names, layer.LayerType().String())
			contents = append(contents, layer.LayerContents()...)
		}
		if !bytes.Equal(contents, b) {
			t.Errorf("%v: layers hold %x, want %x", info.Name, contents, b)
		}
		if got := strings.Join(names, " "); want[p.BTH.Opcode] != "" && got != want[p.BTH.Opcode] {
			t.Errorf("%v: %s, want %s", info.Name, got, want[p.BTH.Opcode])
		}
		icrc, ok := decoded.Layer(LayerTypeICRC).(*ICRC)
		if !ok || icrc.Value != 0x04030201 || len(icrc.Pad) != int(rocev2.PadCount(len(p.Payload))) {
			t.Errorf("%v: ICRC %+v", info.Name, icrc)
		}
		if !strings.Contains(decoded.String(), info.Name) {
			t.Errorf("%v: the dump does not name the opcode", info.Name)
		}
		if err := CheckICRC(decoded); !errors.Is(err, ErrNotRoCEv2) {
			t.Errorf("%v: CheckICRC without an IP header: %v", info.Name, err)
		}
	}
}

func TestDecodeFailure(t *testing.T) {
	t.Parallel()
	whole := append((&rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCAcknowledge}}).AppendTo(nil), 0, 0, 0, 0)
	version := append([]byte(nil), whole...)
	version[1] = 1
	tests := []struct {
		name      string
		b         []byte
		want      error
		truncated bool
	}{
		{"truncated", whole[:len(whole)-1], rocev2.ErrShort, true},
		{"unknown opcode", bytes.Repeat([]byte{0xff}, 32), rocev2.ErrOpcode, false},
		{"version", version, rocev2.ErrVersion, false},
	}
	for _, tt := range tests {
		p := gopacket.NewPacket(tt.b, LayerTypeRoCEv2, gopacket.Default)
		failure := p.ErrorLayer()
		if failure == nil || !errors.Is(failure.Error(), tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, failure, tt.want)
		}
		if p.Metadata().Truncated != tt.truncated {
			t.Errorf("%s: truncated %t", tt.name, !tt.truncated)
		}
	}
	if p := gopacket.NewPacket(whole, LayerTypeAETH, gopacket.Default); p.ErrorLayer() == nil {
		t.Error("an AETH decodes by itself")
	}
}

func TestCheckICRCNoticesDamage(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"rping", "rc_pingpong_v6"} {
		frame := readPackets(t, "../testdata/golden/"+name+".pcap")[0].Data()
		frame[len(frame)-10] ^= 1
		p := gopacket.NewPacket(frame, layers.LinkTypeEthernet, gopacket.Default)
		if err := CheckICRC(p); !errors.Is(err, ErrICRC) {
			t.Errorf("%s: %v, want %v", name, err, ErrICRC)
		}
	}
}

// FuzzDecode: whatever UDP carries to port 4791, decoding it does not panic,
// and no byte is lost.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"rping", "udaddy", "ib_atomic_bw"} {
		for _, p := range readPackets(f, "../testdata/golden/"+name+".pcap") {
			f.Add(p.TransportLayer().LayerPayload())
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 0xffff-28 {
			return
		}
		header := []byte{
			0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
			0xc0, 0, rocev2.UDPPort >> 8, rocev2.UDPPort & 0xff, 0, 0, 0, 0,
		}
		binary.BigEndian.PutUint16(header[2:], uint16(len(b)+28))
		binary.BigEndian.PutUint16(header[24:], uint16(len(b)+8))
		p := gopacket.NewPacket(append(header, b...), layers.LayerTypeIPv4, gopacket.DecodeOptions{SkipDecodeRecovery: true})
		if p.Layer(LayerTypeICRC) != nil {
			checkContents(t, p)
		} else if p.ErrorLayer() == nil && len(b) > 0 {
			t.Fatal("neither layers nor an error")
		}
		_ = CheckICRC(p)
	})
}
