package lease

import (
	"bytes"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

var samples = []*Message{
	{Hello: &Hello{Version: Version, Shards: 4, RecvBuffer: 1 << 20, Command: "a program"}},
	{Reserve: &Service{ID: 1<<63 + 5, Mask: 1<<64 - 1}},
	{Release: &Service{ID: 7}},
	{Tell: &Counts{QPs: 3, TxPackets: 1<<64 - 1}},
	{Grant: &Grant{Version: Version, Local: netip.MustParseAddrPort("[fe80::1%eth0]:4791"), Slot: 8, Slots: 256, Token: Token{1, 2, 15: 255}}},
	{Refused: &Refusal{Reason: NoSlot, Text: "all are leased"}},
	{Done: true},
	{Ask: true},
	{List: true},
}

func TestMessages(t *testing.T) {
	t.Parallel()
	for _, m := range samples {
		b := m.Append(nil)
		got, err := Parse(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: %+v, %v", b, got, err)
		}
	}
}

func TestMessagesRefused(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "null", "{}", "[]", "1", `{"done":true,"ask":true}`, `{"hello":{"version":"x"}}`, `{"done":true}{"done":true}`,
		`{"grant":{"token":"00"}}`, `{"hello":{}} `[:11], strings.Repeat(" ", MaxMessage) + `{"done":true}`, strings.Repeat("[", MaxMessage)} {
		if m, err := Parse([]byte(s)); err == nil {
			t.Errorf("%.40q is %+v", s, m)
		}
	}
}

// Counters that cannot be are no message: sums of them go into what the owner's
// user sees, and a zone is written to terminals.
func TestLiesAreRefused(t *testing.T) {
	t.Parallel()
	for _, s := range []string{`{"qps":-1}`, `{"qps":16777217}`, `{"peers":[{"addr":"fe80::1%eth0\u001b[2J"}]}`, `{"peers":[{"addr":"fe80::1%a b\n"}]}`,
		`{"types":[{"type":"RC\u001b[2J"}]}`, `{"requests":[{"operation":"` + strings.Repeat("A", 25) + `"}]}`, `{"connections":[{"type":"rc"}]}`,
		`{"connections":[{"type":"RC","peer":"fe80::1%eth0"}]}`, `{"types":[` + strings.Repeat("{},", transport.MostUsedTypes) + `{}]}`} {
		if m, err := Parse([]byte(`{"tell":` + s + `}`)); err == nil {
			t.Errorf("%s is %+v", s, m.Tell)
		}
	}
	for _, s := range []string{`{}`, `{"qps":16777216}`, `{"peers":[{"addr":"fe80::1%eth0.5"},{"addr":"192.0.2.1"}]}`} {
		if _, err := Parse([]byte(`{"tell":` + s + `}`)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// What is parsed can be written and is the same then.
func FuzzParse(f *testing.F) {
	for _, m := range samples {
		f.Add(m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(m.Append(nil))
		if err != nil && len(m.Append(nil)) <= MaxMessage {
			t.Fatalf("%+v cannot be read again: %v", m, err)
		}
		if err == nil && !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v, then %+v", m, again)
		}
	})
}

var (
	own   = netip.MustParseAddr("192.0.2.1")
	token = Token{3, 1, 4, 1, 5}
)

// wrapped returns a received envelope with a packet.
func wrapped(t testing.TB, inner []byte) transport.RxPacket {
	e := Envelope{To: 77, Token: token, Addr: netip.MustParseAddr("192.0.2.9"), Port: 5555, TrafficClass: 3, HopLimit: 9, FlowLabel: 0x12345}
	b := make([]byte, rocev2.MaxPacketLen)
	n := e.Put(b, inner)
	if n == 0 {
		t.Fatal("no room")
	}
	return transport.RxPacket{Data: b[:n+rocev2.ICRCLen], Src: own, Dst: own, SrcPort: 4791, ICRC: transport.ICRCVerified}
}

func TestEnvelope(t *testing.T) {
	t.Parallel()
	inner := bytes.Repeat([]byte{0x64, 0, 0xff}, 92)
	p := wrapped(t, inner)
	if !unwrap(&p, own, &token) {
		t.Fatal("it is not unwrapped")
	}
	if !bytes.Equal(p.Data[:len(p.Data)-rocev2.ICRCLen], inner) || p.ICRC != transport.ICRCAbsent {
		t.Errorf("%x, %v", p.Data, p.ICRC)
	}
	if p.Src != netip.MustParseAddr("192.0.2.9") || p.SrcPort != 5555 || p.TrafficClass != 3 || p.HopLimit != 9 || p.FlowLabel != 0x12345 {
		t.Errorf("%+v", p)
	}
}

// Only the owner can have a leaseholder take a packet for another one's.
func TestEnvelopeForged(t *testing.T) {
	t.Parallel()
	inner := make([]byte, 276)
	for name, change := range map[string]func(*transport.RxPacket){
		"token":   func(p *transport.RxPacket) { p.Data[12] ^= 1 },
		"source":  func(p *transport.RxPacket) { p.Src = netip.MustParseAddr("192.0.2.2") },
		"ICRC":    func(p *transport.RxPacket) { p.ICRC = transport.ICRCBad },
		"no ICRC": func(p *transport.RxPacket) { p.ICRC = transport.ICRCAbsent },
		"short":   func(p *transport.RxPacket) { p.Data = p.Data[:HeaderLen+rocev2.ICRCLen] },
		"version": func(p *transport.RxPacket) { p.Data[28] = 0x20 },
	} {
		p := wrapped(t, inner)
		change(&p)
		before := p
		if unwrap(&p, own, &token) || !reflect.DeepEqual(p, before) {
			t.Errorf("%s: it is unwrapped", name)
		}
	}
}

func TestEnvelopeAllocates(t *testing.T) {
	p := wrapped(t, make([]byte, 276))
	if n := testing.AllocsPerRun(100, func() {
		q := p
		unwrap(&q, own, &token)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzEnvelope(f *testing.F) {
	p := wrapped(f, make([]byte, 276))
	f.Add(p.Data)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < rocev2.BTHLen+rocev2.ICRCLen {
			return
		}
		q := transport.RxPacket{Data: b, Src: own, Dst: own, ICRC: transport.ICRCVerified}
		if unwrap(&q, own, &token) && len(q.Data) < rocev2.BTHLen+rocev2.ICRCLen {
			t.Fatalf("%d bytes inside", len(q.Data))
		}
	})
}
