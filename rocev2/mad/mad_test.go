package mad

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/captures"
	"github.com/gosoftroce/rocev2/rocev2"
)

// golden are the captures of kernels that have connection management, and the
// messages in them.
var golden = []struct {
	file  string
	count map[Attribute]int
}{
	{"cmtime", map[Attribute]int{AttrREQ: 3, AttrREP: 3, AttrRTU: 3, AttrDREQ: 3, AttrDREP: 3}},
	{"rdma_client", map[Attribute]int{AttrREQ: 1, AttrREP: 1, AttrRTU: 1, AttrDREQ: 2, AttrDREP: 1}},
	{"rping", map[Attribute]int{AttrREQ: 1, AttrREP: 1, AttrRTU: 1, AttrDREQ: 1, AttrDREP: 1}},
	{"ucmatose", map[Attribute]int{AttrREQ: 1, AttrREP: 1, AttrRTU: 1, AttrDREQ: 1, AttrDREP: 1}},
	{"udaddy", map[Attribute]int{AttrSIDRREQ: 1, AttrSIDRREP: 1}},
}

// goldenMADs returns the payloads of the packets to queue pair 1 in a capture.
func goldenMADs(t testing.TB, name string) [][]byte {
	t.Helper()
	frames, _ := captures.File(t, "../testdata/golden/"+name+".pcap")
	var mads [][]byte
	for _, f := range frames {
		if binary.BigEndian.Uint16(f[12:]) != 0x0800 {
			continue
		}
		var p rocev2.Packet
		if err := p.Parse(f[14+20+8 : 14+int(binary.BigEndian.Uint16(f[16:]))]); err != nil {
			t.Fatal(err)
		}
		if p.BTH.DestQPN == rocev2.GSIQPN {
			mads = append(mads, p.Payload)
		}
	}
	return mads
}

func poisoned(n int) []byte { return bytes.Repeat([]byte{0xa5}, n)[:0] }

// Every MAD of the kernels decodes and encodes to the same bytes.
func TestGoldenCaptures(t *testing.T) {
	t.Parallel()
	for _, g := range golden {
		t.Run(g.file, func(t *testing.T) {
			t.Parallel()
			count := map[Attribute]int{}
			for i, b := range goldenMADs(t, g.file) {
				h, m, err := Parse(b)
				if err != nil {
					t.Fatalf("MAD %d: %v", i, err)
				}
				count[h.Attribute]++
				if got := m.AppendTo(poisoned(Len)); !bytes.Equal(got, b) {
					t.Errorf("MAD %d, %v:\n got %x\nwant %x", i, h.Attribute, got, b)
				}
			}
			if !reflect.DeepEqual(count, g.count) {
				t.Errorf("messages are %v, want %v", count, g.count)
			}
		})
	}
}

// What a kernel's REQ, REP and DREQ say.
func TestGoldenFields(t *testing.T) {
	t.Parallel()
	client, server := netip.MustParseAddr("198.18.0.4"), netip.MustParseAddr("198.18.0.2")
	mads := goldenMADs(t, "rping")
	var req REQ
	var rep REP
	if err := errors.Join(req.Parse(mads[0]), rep.Parse(mads[1])); err != nil {
		t.Fatal(err)
	}
	if space, port, ok := req.ServiceID.Port(); space != PortSpaceTCP || port != 7174 || !ok {
		t.Errorf("the service is %v", req.ServiceID)
	}
	p := &req.Primary
	if p.LocalGID != client || p.RemoteGID != server || p.HopLimit != 64 || p.AckTimeout != 17 || p.LocalLID != 0xffff {
		t.Errorf("the path is %+v", *p)
	}
	if req.RemoteResponseTimeout != 20 || req.LocalResponseTimeout != 20 || req.MaxRetries != 15 || req.PKey != 0xffff || req.PathMTU != 3 {
		t.Errorf("the request is %+v", req)
	}
	var ip IPHeader
	data, err := ip.Parse(req.Private)
	if err != nil || ip.Source != client || ip.Destination != server || len(data) != 56 {
		t.Errorf("the IP header is %+v, with %d bytes behind it, %v", ip, len(data), err)
	}
	if got := ip.AppendTo(poisoned(IPHeaderLen)); !bytes.Equal(got, req.Private[:IPHeaderLen]) {
		t.Errorf("the IP header is %x, want %x", got, req.Private[:IPHeaderLen])
	}
	if rep.RemoteID != req.LocalID || rep.TransactionID != req.TransactionID || rep.TargetAckDelay != 15 || rep.LocalGUID == 0 || rep.LocalGUID == req.LocalGUID {
		t.Errorf("the reply is %+v", rep)
	}
	var dreq DREQ
	if err := dreq.Parse(mads[3]); err != nil || dreq.LocalID != req.LocalID || dreq.RemoteQPN != rep.LocalQPN {
		t.Errorf("the disconnect request is %+v, %v", dreq, err)
	}
	var sidr SIDRREP
	if err := sidr.Parse(goldenMADs(t, "udaddy")[1]); err != nil || sidr.QKey != 0x01234567 || sidr.Status != SIDRSuccess || sidr.QPN == 0 {
		t.Errorf("the SIDR reply is %+v, %v", sidr, err)
	}
}

// randomMessage fills every field of a message with random bits of its width.
func randomMessage(rng *rand.Rand, a Attribute) Message {
	b := make([]byte, Len)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	copy(b, []byte{baseVersion, ClassCM, classVersion, methodSend})
	be.PutUint16(b[16:], uint16(a))
	m := New(a)
	if err := m.Parse(b); err != nil {
		panic(err)
	}
	return m
}

// Every field survives: a message encodes, and decodes to itself; and no two
// fields share a bit.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for a := AttrREQ; a <= AttrAPR; a++ {
		for range 200 {
			m := randomMessage(rng, a)
			b := m.AppendTo(poisoned(Len))
			if len(b) != Len {
				t.Fatalf("%v: %d bytes", a, len(b))
			}
			again := New(a)
			if err := again.Parse(b); err != nil || !reflect.DeepEqual(m, again) {
				t.Fatalf("%v: %v\n got %+v\nwant %+v", a, err, again, m)
			}
			h, other, err := Parse(b)
			if err != nil || h.Attribute != a || m.Attribute() != a || !reflect.DeepEqual(m, other) {
				t.Fatalf("%v: Parse returns %v, %+v, %v", a, h, other, err)
			}
		}
	}
}

// Private data shorter than its field is filled up with zeros; longer data is a
// mistake.
func TestPrivateData(t *testing.T) {
	t.Parallel()
	for a := AttrREQ; a <= AttrAPR; a++ {
		m := New(a)
		field := reflect.ValueOf(m).Elem().FieldByName("Private")
		b := m.AppendTo(nil)
		if err := m.Parse(b); err != nil {
			t.Fatal(err)
		}
		room := field.Len()
		field.SetBytes([]byte("hello"))
		b = m.AppendTo(poisoned(Len))
		if err := m.Parse(b); err != nil {
			t.Fatal(err)
		}
		if want := append([]byte("hello"), make([]byte, room-5)...); !bytes.Equal(field.Bytes(), want) {
			t.Errorf("%v: private data %q", a, field.Bytes())
		}
		field.SetBytes(make([]byte, room+1))
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v takes %d bytes of private data", a, room+1)
				}
			}()
			m.AppendTo(nil)
		}()
	}
}

// What is no message of connection management is refused by name: every
// truncation, what is longer, and each field of the header.
func TestRefused(t *testing.T) {
	t.Parallel()
	for a := AttrREQ; a <= AttrAPR; a++ {
		good := New(a).AppendTo(nil)
		for n := range Len {
			if err := New(a).Parse(good[:n]); err != ErrLength {
				t.Fatalf("%v of %d bytes: %v", a, n, err)
			}
			if _, _, err := Parse(good[:n]); err != ErrLength {
				t.Fatalf("%v of %d bytes: %v", a, n, err)
			}
		}
		if err := New(a).Parse(append(slices.Clone(good), 0)); err != ErrLength {
			t.Errorf("%v of 257 bytes: %v", a, err)
		}
		for at, want := range map[int]error{0: ErrBaseVersion, 1: ErrClass, 2: ErrClassVersion, 3: ErrMethod, 16: ErrAttribute, 17: ErrAttribute} {
			bad := slices.Clone(good)
			bad[at] ^= 0x40
			if err := New(a).Parse(bad); err != want {
				t.Errorf("%v with another byte %d: %v, want %v", a, at, err, want)
			}
			if _, _, err := Parse(bad); err != want {
				t.Errorf("%v with another byte %d: %v, want %v", a, at, err, want)
			}
		}
		other := AttrREQ + (a-AttrREQ+1)%11
		if err := New(other).Parse(good); err != ErrAttribute {
			t.Errorf("%v as a %v: %v", a, other, err)
		}
	}
	if New(0x1b) != nil || New(0x0f) != nil {
		t.Error("there are more messages than there are")
	}
}

func TestIPHeader(t *testing.T) {
	t.Parallel()
	for _, h := range []IPHeader{
		{4791, netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("10.4.5.6")},
		{1, netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")},
	} {
		b := append(h.AppendTo(poisoned(IPHeaderLen)), "data"...)
		var got IPHeader
		data, err := got.Parse(b)
		if err != nil || got != h || string(data) != "data" {
			t.Errorf("%+v becomes %+v with %q, %v", h, got, data, err)
		}
		for n := range IPHeaderLen {
			if _, err := got.Parse(b[:n]); err != ErrIPHeaderLength {
				t.Fatalf("%d bytes: %v", n, err)
			}
		}
		for at, want := range map[int]error{0: ErrIPHeaderVersion, 1: ErrIPVersion} {
			bad := slices.Clone(b)
			bad[at] ^= 0x80
			if _, err := got.Parse(bad); err != want {
				t.Errorf("byte %d changed: %v, want %v", at, err, want)
			}
		}
	}
	// IPv4 is the same in both of its forms.
	short := IPHeader{1, netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("10.4.5.6")}
	mapped := IPHeader{1, netip.MustParseAddr("::ffff:10.1.2.3"), netip.MustParseAddr("::ffff:10.4.5.6")}
	if !bytes.Equal(short.AppendTo(nil), mapped.AppendTo(nil)) {
		t.Error("a mapped address encodes otherwise")
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		AttrSIDRREP.String():                  "SIDR_REP",
		Attribute(0x30).String():              "attribute 0x0030",
		PortSpaceTCP.Service(7174).String():   "TCP port 7174",
		PortSpaceUDP.Service(1).String():      "UDP port 1",
		PortSpaceIB.Service(65535).String():   "IB port 65535",
		ServiceID(0x1_0106_0001).String():     "0x0000000101060001",
		ServiceID(0x0003_0001).String():       "0x0000000000030001",
		PortSpaceIPoIB.Service(1).String():    "IPoIB port 1",
		PortSpace(3).String():                 "port space 0x0003",
		GUID(0x505a00fffe120004).String():     "505a:00ff:fe12:0004",
		TransportUC.String():                  "UC",
		TransportExtended.String():            "extended",
		StageREQ.String() + StageREP.String(): "REQREP",
		StageOther.String():                   "other",
		ReasonStale.String():                  "stale connection",
		Reason(34).String():                   "reason 34",
		SIDRRejected.String():                 "rejected by the program",
		SIDRStatus(6).String():                "status 6",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for r := Reason(1); r <= 35; r++ {
		if strings.HasPrefix(r.String(), "reason ") != (r == 34) {
			t.Errorf("%d is %q", r, r)
		}
	}
	if Timeout(20) != 4294967296*time.Nanosecond || Timeout(0) != 4096 || Timeout(32) != 4096 {
		t.Errorf("code 20 is %v", Timeout(20))
	}
}

func TestNoAllocations(t *testing.T) {
	mads := goldenMADs(t, "rping")
	b := make([]byte, 0, Len)
	var req REQ
	var rep REP
	if n := testing.AllocsPerRun(100, func() {
		if req.Parse(mads[0]) != nil || rep.Parse(mads[1]) != nil {
			panic("does not parse")
		}
		req.AppendTo(b)
		rep.AppendTo(b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzMAD: nothing panics, and what decodes is the same after it was encoded.
func FuzzMAD(f *testing.F) {
	for _, g := range golden {
		for _, b := range goldenMADs(f, g.file) {
			f.Add(b)
		}
	}
	for a := AttrREQ; a <= AttrAPR; a++ {
		f.Add(randomMessage(rand.New(rand.NewPCG(1, uint64(a))), a).AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		_, m, err := Parse(b)
		if !bytes.Equal(b, before) {
			t.Fatal("Parse changed the MAD")
		}
		if err != nil {
			return
		}
		_, again, err := Parse(m.AppendTo(poisoned(Len)))
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, again, m)
		}
		if req, ok := m.(*REQ); ok {
			var ip, second IPHeader
			if data, err := ip.Parse(req.Private); err == nil {
				if rest, err := second.Parse(append(ip.AppendTo(nil), data...)); err != nil || !bytes.Equal(rest, data) {
					t.Fatalf("%+v becomes %+v, %v", ip, second, err)
				}
			}
		}
	})
}
