package dissect_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

var (
	hostA = netip.MustParseAddr("192.0.2.1")
	hostB = netip.MustParseAddr("192.0.2.2")
	six1  = netip.MustParseAddr("2001:db8::1")
	six2  = netip.MustParseAddr("2001:db8::2")
)

// traffic is a capture that a test makes. Frames are 10 µs apart.
type traffic struct {
	frames []dissect.Frame
	at     time.Duration
	id     uint16
}

const step = 10 * time.Microsecond

// Next makes it a dissect.Source.
func (c *traffic) Next(f *dissect.Frame) error {
	if len(c.frames) == 0 {
		return io.EOF
	}
	*f = c.frames[0]
	c.frames = c.frames[1:]
	return nil
}

// add adds a frame.
func (c *traffic) add(link dissect.LinkType, data []byte) {
	c.at += step
	c.frames = append(c.frames, dissect.Frame{Time: time.Unix(1000, 0).UTC().Add(c.at), Link: link, Data: data, Length: len(data)})
}

// wait lets time pass.
func (c *traffic) wait(d time.Duration) { c.at += d }

// datagram returns an IP packet with UDP to port 4791.
func datagram(src, dst netip.Addr, id uint16, data []byte) []byte {
	var b []byte
	be := binary.BigEndian
	if src.Is4() {
		b = append(b, 0x45, 0)
		b = be.AppendUint16(b, uint16(28+len(data)))
		b = be.AppendUint16(b, id)
		b = append(b, 0x40, 0, 64, 17, 0, 0)
	} else {
		b = append(b, 0x60, 0, 0, 0)
		b = be.AppendUint16(b, uint16(8+len(data)))
		b = append(b, 17, 64)
	}
	b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	b = be.AppendUint16(b, sport)
	b = be.AppendUint16(b, rocev2.UDPPort)
	b = be.AppendUint16(b, uint16(8+len(data)))
	return append(append(b, 0, 0), data...)
}

const sport = 49200

// seal returns a packet with its ICRC.
func seal(src, dst netip.Addr, id uint16, p *rocev2.Packet) []byte {
	flow := rocev2.NewFlow(src, dst, sport, rocev2.UDPPort)
	return flow.Seal(id, p.AppendTo(nil))
}

// packet adds a packet.
func (c *traffic) packet(src, dst netip.Addr, p rocev2.Packet) {
	c.id++
	p.BTH.PKey = rocev2.DefaultPKey
	c.add(dissect.LinkRaw, datagram(src, dst, c.id, seal(src, dst, c.id, &p)))
}

// request adds a request of A to queue pair 0x20 of B, with n bytes.
func (c *traffic) request(op rocev2.Opcode, psn rocev2.PSN, n int) {
	c.packet(hostA, hostB, rocev2.Packet{
		BTH: rocev2.BTH{Opcode: op, DestQPN: qpB, PSN: psn}, Payload: make([]byte, n),
		RETH: rocev2.RETH{VA: 0x1000, RKey: 7, Length: uint32(n)},
	})
}

const (
	qpA = 0x10
	qpB = 0x20
)

// read adds a READ of n bytes.
func (c *traffic) read(psn rocev2.PSN, n uint32) {
	c.packet(hostA, hostB, rocev2.Packet{
		BTH:  rocev2.BTH{Opcode: rocev2.RCReadRequest, DestQPN: qpB, PSN: psn},
		RETH: rocev2.RETH{VA: 0x1000, RKey: 7, Length: n},
	})
}

// response adds a response of B to queue pair 0x10 of A.
func (c *traffic) response(op rocev2.Opcode, psn rocev2.PSN, s rocev2.Syndrome, n int) {
	c.packet(hostB, hostA, rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: op, DestQPN: qpA, PSN: psn},
		AETH:    rocev2.AETH{Syndrome: s},
		Payload: make([]byte, n),
	})
}

func (c *traffic) ack(psn rocev2.PSN) {
	c.response(rocev2.RCAcknowledge, psn, rocev2.ACKNoCredits, 0)
}

// mad adds a message of connection management.
func (c *traffic) mad(src, dst netip.Addr, m mad.Message) {
	c.packet(src, dst, rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: rocev2.UDSendOnly, DestQPN: rocev2.GSIQPN},
		DETH:    rocev2.DETH{QKey: mad.QKey, SrcQPN: rocev2.GSIQPN},
		Payload: m.AppendTo(nil),
	})
}

// run analyses the capture and returns it with its packets.
func (c *traffic) run(t *testing.T) ([]seen, *dissect.Flows) {
	t.Helper()
	capture := dissect.New(c, dissect.Limits{})
	return packets(t, capture), capture.Flows()
}

// marks returns the flags of the packets, as text.
func marks(all []seen) string {
	var list []string
	for _, p := range all {
		s := strings.Join(p.Flags.Names(), "+")
		if s == "" {
			s = "-"
		}
		list = append(list, s)
	}
	return strings.Join(list, " ")
}

// only returns the only connection.
func only(t *testing.T, f *dissect.Flows) *dissect.Connection {
	t.Helper()
	list := f.Connections()
	if len(list) != 1 {
		t.Fatalf("%d connections, want 1", len(list))
	}
	return list[0]
}

// Captures come with every link type; the packet is the same.
func TestLinkTypes(t *testing.T) {
	t.Parallel()
	for _, hosts := range [][2]netip.Addr{{hostA, hostB}, {six1, six2}} {
		p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCAcknowledge, DestQPN: 5, PSN: 6}}
		ip := datagram(hosts[0], hosts[1], 9, seal(hosts[0], hosts[1], 9, &p))
		kind := []byte{8, 0}
		if hosts[0].Is6() {
			kind = []byte{0x86, 0xdd}
		}
		macs := make([]byte, 12)
		vlan := []byte{0x81, 0, 0x20, 100}
		for name, f := range map[string]dissect.Frame{
			"ethernet":    {Link: dissect.LinkEthernet, Data: slices.Concat(macs, kind, ip)},
			"padded":      {Link: dissect.LinkEthernet, Data: slices.Concat(macs, kind, ip, make([]byte, 20))},
			"vlan":        {Link: dissect.LinkEthernet, Data: slices.Concat(macs, vlan, kind, ip)},
			"qinq":        {Link: dissect.LinkEthernet, Data: slices.Concat(macs, []byte{0x88, 0xa8, 0, 7}, vlan, kind, ip)},
			"cooked":      {Link: dissect.LinkSLL, Data: slices.Concat(make([]byte, 14), kind, ip)},
			"cooked v2":   {Link: dissect.LinkSLL2, Data: slices.Concat(kind, make([]byte, 18), ip)},
			"cooked vlan": {Link: dissect.LinkSLL, Data: slices.Concat(make([]byte, 14), vlan, kind, ip)},
			"null":        {Link: dissect.LinkNull, Data: slices.Concat(make([]byte, 4), ip)},
			"raw":         {Link: dissect.LinkRaw, Data: ip},
		} {
			c := dissect.New(&traffic{frames: []dissect.Frame{f}}, dissect.Limits{})
			got, err := c.Next()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			wantVLAN := -1
			if strings.Contains(name, "vlan") || name == "qinq" {
				wantVLAN = 100
			}
			if got.ICRC != dissect.ICRCGood || got.Wire.BTH.PSN != 6 || got.VLAN != wantVLAN || got.IP.Src != hosts[0] || got.Length != 20 {
				t.Errorf("%s: %s, VLAN %d", name, dissect.Line(got), got.VLAN)
			}
		}
	}
}

// What is not RoCEv2 is counted and nothing else.
func TestOtherFrames(t *testing.T) {
	t.Parallel()
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCAcknowledge}}
	ip := datagram(hostA, hostB, 1, seal(hostA, hostB, 1, &p))
	tcp := bytes.Clone(ip)
	tcp[9] = 6
	port := bytes.Clone(ip)
	port[22] = 0
	c := &traffic{}
	for _, b := range [][]byte{tcp, port, ip[:20], ip[:10], {}, {0x45}, bytes.Repeat([]byte{0x60}, 40)} {
		c.add(dissect.LinkRaw, b)
	}
	c.add(147, ip)
	capture := dissect.New(c, dissect.Limits{})
	if got := packets(t, capture); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if all, other := capture.Frames(); all != 8 || other != 8 {
		t.Errorf("%d frames, %d others; want 8 and 8", all, other)
	}
}

// A packet that cannot be parsed is shown with the reason, and with its BTH if
// it has one.
func TestMalformed(t *testing.T) {
	t.Parallel()
	good := func() []byte {
		return seal(hostA, hostB, 1, &rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, DestQPN: 5, PSN: 6}, Payload: []byte("1234")})
	}
	change := func(f func([]byte)) []byte { b := good(); f(b); return b }
	fragment := datagram(hostA, hostB, 1, good())
	fragment[6] |= 0x20
	short := datagram(hostA, hostB, 1, good())
	short[25] = 4
	for want, ip := range map[string][]byte{
		"unknown opcode":       datagram(hostA, hostB, 1, change(func(b []byte) { b[0] = 0xff })),
		"version is not 0":     datagram(hostA, hostB, 1, change(func(b []byte) { b[1] |= 1 })),
		"multiple of 4":        datagram(hostA, hostB, 1, append(good(), 0)),
		"shorter than":         datagram(hostA, hostB, 1, good()[:10]),
		"UDP length":           short,
		"fragment":             fragment,
		"BAD ICRC":             datagram(hostA, hostB, 1, change(func(b []byte) { b[13]++ })),
		"pad count exceeds":    datagram(hostA, hostB, 1, change(func(b []byte) { b[1] |= 0x30 })[:16]),
		"longer than any MTU":  datagram(hostA, hostB, 1, make([]byte, 8000)),
		"psn 6 len 4  #1 SEND": datagram(hostA, hostB, 1, good()),
	} {
		c := &traffic{}
		c.add(dissect.LinkRaw, ip)
		got, _ := c.run(t)
		if len(got) != 1 || !strings.Contains(got[0].line, want) {
			t.Errorf("want %q in %v", want, got)
		}
	}
}
