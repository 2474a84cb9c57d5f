package ring

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"reflect"
	"runtime"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
)

// element builds a request from words at offsets of struct rxe_send_wqe, as a C
// compiler has them.
func element(n int, words map[int]any) []byte {
	e := make([]byte, n)
	for at, v := range words {
		switch v := v.(type) {
		case int:
			binary.NativeEndian.PutUint32(e[at:], uint32(v))
		case uint64:
			binary.NativeEndian.PutUint64(e[at:], v)
		case byte:
			e[at] = v
		case string:
			copy(e[at:], v)
		case []byte:
			copy(e[at:], v)
		}
	}
	return e
}

func TestDecodeSend(t *testing.T) {
	t.Parallel()
	sge := ib.SGE{Addr: 0x1122334455667788, Length: 100, LKey: 0xabc}
	withSGE := func(more map[int]any) map[int]any {
		words := map[int]any{0: uint64(7), 16: 2, 184: 100, 196: 1, 208: sge.Addr, 216: 100, 220: 0xabc}
		for at, v := range more {
			words[at] = v
		}
		return words
	}
	list := []ib.SGE{sge}
	for _, c := range []struct {
		why   string
		words map[int]any
		want  ib.SendWR
	}{
		{"WRITE", withSGE(map[int]any{12: 0, 24: uint64(0x1000), 32: 0x55}),
			ib.SendWR{Opcode: ib.OpWrite, SGList: list, Remote: ib.RemoteAddr{Addr: 0x1000, RKey: 0x55}}},
		{"WRITE with immediate data, most significant byte first", withSGE(map[int]any{12: 1, 16: 7, 20: "\x01\x02\x03\x04"}),
			ib.SendWR{Opcode: ib.OpWriteImm, SGList: list, Imm: 0x01020304, Fence: true, Solicited: true}},
		{"SEND", withSGE(map[int]any{12: 2}), ib.SendWR{Opcode: ib.OpSend, SGList: list}},
		{"SEND, whatever else is there", withSGE(map[int]any{12: 2, 24: uint64(5), 32: 9, 20: 4}), ib.SendWR{Opcode: ib.OpSend, SGList: list}},
		{"SEND with immediate data", withSGE(map[int]any{12: 3, 20: "\xff\x00\x00\x01"}), ib.SendWR{Opcode: ib.OpSendImm, SGList: list, Imm: 0xff000001}},
		{"READ", withSGE(map[int]any{12: 4, 24: uint64(1 << 63), 32: 1}),
			ib.SendWR{Opcode: ib.OpRead, SGList: list, Remote: ib.RemoteAddr{Addr: 1 << 63, RKey: 1}}},
		{"compare and swap", withSGE(map[int]any{12: 5, 24: uint64(8), 32: uint64(9), 40: uint64(10), 48: 11, 184: 8, 216: 8}),
			ib.SendWR{Opcode: ib.OpCompareSwap, SGList: []ib.SGE{{Addr: sge.Addr, Length: 8, LKey: 0xabc}}, CompareAdd: 9, Swap: 10,
				Remote: ib.RemoteAddr{Addr: 8, RKey: 11}}},
		{"fetch and add into a longer list", withSGE(map[int]any{12: 6, 24: uint64(8), 32: uint64(9), 48: 11}),
			ib.SendWR{Opcode: ib.OpFetchAdd, SGList: []ib.SGE{{Addr: sge.Addr, Length: 8, LKey: 0xabc}}, CompareAdd: 9,
				Remote: ib.RemoteAddr{Addr: 8, RKey: 11}}},
		{"LOCAL_INV", map[int]any{0: uint64(7), 12: 7, 16: 2, 20: 0x77}, ib.SendWR{Opcode: ib.OpLocalInv, InvalidateKey: 0x77}},
		{"BIND_MW", map[int]any{0: uint64(7), 12: 8, 16: 2, 24: uint64(1), 32: uint64(2), 40: 3, 44: 0x12304, 48: 0x45605, 52: 6},
			ib.SendWR{Opcode: ib.OpBindMW, Bind: &ib.BindMW{Addr: 1, Length: 2, Region: 3, Window: 0x12304, NewKey: 0x12305, Access: 6}}},
		{"SEND with invalidate", withSGE(map[int]any{12: 9, 20: 0x1234}), ib.SendWR{Opcode: ib.OpSendInv, SGList: list, InvalidateKey: 0x1234}},
		{"FLUSH", map[int]any{0: uint64(7), 12: 14, 16: 2, 24: uint64(64), 36: 9, 40: byte(2), 41: byte(1), 184: 500},
			ib.SendWR{Opcode: ib.OpFlush, Remote: ib.RemoteAddr{Addr: 64, RKey: 9}, Length: 500, FlushType: 2, FlushLevel: 1}},
		{"ATOMIC WRITE", map[int]any{0: uint64(7), 12: 15, 16: 2, 24: uint64(64), 32: 9, 184: 8, 208: "12345678"},
			ib.SendWR{Opcode: ib.OpAtomicWrite, Remote: ib.RemoteAddr{Addr: 64, RKey: 9}, Inline: []byte("12345678")}},
		{"inline data", map[int]any{0: uint64(7), 12: 2, 16: 10, 184: 5, 196: 1, 208: "hello"}, ib.SendWR{Opcode: ib.OpSend, Inline: []byte("hello")}},
		{"inline data of ibv_wr_set_inline_data, without the flag", map[int]any{0: uint64(7), 12: 2, 16: 2, 184: 5, 208: "hello"},
			ib.SendWR{Opcode: ib.OpSend, Inline: []byte("hello")}},
		{"nothing", map[int]any{0: uint64(7), 12: 2, 16: 2}, ib.SendWR{Opcode: ib.OpSend}},
		{"a length that is not that of the list", withSGE(map[int]any{12: 2, 184: 1}), ib.SendWR{Opcode: ib.OpSend, SGList: list}},
	} {
		c.want.ID, c.want.Signaled = 7, true
		var s Send
		e := element(256, c.words)
		if st := s.Decode(e, Limits{SGE: 3, Inline: 48}); st != ib.StatusSuccess {
			t.Errorf("%s: %v", c.why, st)
			continue
		}
		if len(s.WR.SGList) == 0 {
			s.WR.SGList = nil
		}
		if !reflect.DeepEqual(*s.WR, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.why, *s.WR, c.want)
		}
	}
}

func TestDecodeDatagram(t *testing.T) {
	t.Parallel()
	gid := netip.MustParseAddr("::ffff:192.0.2.7").As16()
	words := map[int]any{12: 2, 16: 2, 24: 0x123, 28: 0x456, 36: 9, 56: byte(1), 64: gid[:], 80: 0xfedcb, 84: byte(0), 85: byte(3), 86: byte(104)}
	var s Send
	if st := s.Decode(element(256, words), Limits{SGE: 3, Datagram: true}); st != ib.StatusSuccess || s.AH != 9 || s.WR.RemoteQPN != 0x123 ||
		s.WR.RemoteQKey != 0x456 || s.Vector.DGID.IsValid() {
		t.Errorf("by a handle: %v, %+v", st, s)
	}
	words[36] = 0
	want := ib.AddressVector{DGID: netip.MustParseAddr("192.0.2.7"), FlowLabel: 0xfedcb, HopLimit: 3, TrafficClass: 104}
	if st := s.Decode(element(256, words), Limits{SGE: 3, Datagram: true}); st != ib.StatusSuccess || s.AH != 0 || s.Vector != want {
		t.Errorf("by a vector: %v, %+v", st, s.Vector)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why   string
		words map[int]any
		want  ib.Status
	}{
		{"too many entries", map[int]any{12: 2, 196: 4}, ib.StatusLocQPOpErr},
		{"entries without end", map[int]any{12: 2, 196: -1}, ib.StatusLocQPOpErr},
		{"too much inline data", map[int]any{12: 0, 16: 8, 184: 33}, ib.StatusLocLenErr},
		{"inline data without end", map[int]any{12: 2, 16: 8, 184: -1}, ib.StatusLocLenErr},
		{"inline data of a READ", map[int]any{12: 4, 16: 8, 184: 8}, ib.StatusLocQPOpErr},
		{"inline data of an atomic", map[int]any{12: 5, 16: 8, 184: 8}, ib.StatusLocQPOpErr},
		{"TSO", map[int]any{12: 10}, ib.StatusLocQPOpErr},
		{"READ with invalidate, of the kernel alone", map[int]any{12: 16}, ib.StatusLocQPOpErr},
		{"registration, of the kernel alone", map[int]any{12: 17}, ib.StatusLocQPOpErr},
		{"no operation", map[int]any{12: -1}, ib.StatusLocQPOpErr},
		{"a large number", map[int]any{12: 258}, ib.StatusLocQPOpErr},
	} {
		c.words[0] = uint64(99)
		var s Send
		if st := s.Decode(element(256, c.words), Limits{SGE: 3, Inline: 32}); st != c.want || s.WR.ID != 99 {
			t.Errorf("%s: %v, ID %d", c.why, st, s.WR.ID)
		}
	}
}

// An element has no more than has room in it, whatever the limits say.
func TestDecodeShortElement(t *testing.T) {
	t.Parallel()
	l := Limits{SGE: 32, Inline: 4096}
	var s Send
	for _, c := range []struct {
		words map[int]any
		want  ib.Status
	}{
		{map[int]any{12: 2, 196: 3}, ib.StatusSuccess},
		{map[int]any{12: 2, 196: 4}, ib.StatusLocQPOpErr},
		{map[int]any{12: 2, 16: 8, 184: 48}, ib.StatusSuccess},
		{map[int]any{12: 2, 16: 8, 184: 49}, ib.StatusLocLenErr},
	} {
		if st := s.Decode(element(256, c.words), l); st != c.want {
			t.Errorf("%v: %v", c.words, st)
		}
	}
	if _, _, st := DecodeRecv(element(64, map[int]any{28: 2}), 32, nil); st != ib.StatusLocQPOpErr {
		t.Errorf("a receive: %v", st)
	}
}

func TestDecodeRecv(t *testing.T) {
	t.Parallel()
	e := element(128, map[int]any{0: uint64(5), 28: 2, 40: uint64(1), 48: 2, 52: 3, 56: uint64(4), 64: 5, 68: 6})
	id, list, st := DecodeRecv(e, 2, nil)
	if id != 5 || st != ib.StatusSuccess || !reflect.DeepEqual(list, []ib.SGE{{Addr: 1, Length: 2, LKey: 3}, {Addr: 4, Length: 5, LKey: 6}}) {
		t.Errorf("%d, %v, %v", id, list, st)
	}
	if id, list, st := DecodeRecv(e, 1, list); id != 5 || len(list) != 0 || st != ib.StatusLocQPOpErr {
		t.Errorf("too many entries: %d, %v, %v", id, list, st)
	}
}

// The bytes are those that libibverbs copies to struct ibv_wc.
func TestEncodeWC(t *testing.T) {
	t.Parallel()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the expected bytes are those of a little-endian machine: run it on one")
	}
	for _, c := range []struct {
		why  string
		wc   ib.WC
		want string
	}{
		{"a receive of a datagram with immediate data",
			ib.WC{ID: 0x0102030405060708, Opcode: ib.WCRecv, ByteLen: 0x11, WithImm: true, Imm: 0xaabbccdd, QPN: 0x12, SrcQPN: 0x34, WithGRH: true},
			"0807060504030201" + "00000000" + "80000000" + "00000000" + "11000000" + "aabbccdd" + "12000000" + "34000000" + "03000000" + "0000" + "0000" + "02" + "00" + "01" + "00"},
		{"a receive of a SEND with invalidate",
			ib.WC{Opcode: ib.WCRecv, WithInv: true, InvalidatedKey: 0xaabbccdd},
			"0000000000000000" + "00000000" + "80000000" + "00000000" + "00000000" + "ddccbbaa" + "00000000" + "00000000" + "08000000" + "0000" + "0000" + "02" + "00" + "01" + "00"},
		{"an error",
			ib.WC{ID: 1, Status: ib.StatusRemAccessErr, Opcode: ib.WCWrite, VendorErr: 0x262, QPN: 5},
			"0100000000000000" + "0a000000" + "01000000" + "62020000" + "00000000" + "00000000" + "05000000" + "00000000" + "00000000" + "0000" + "0000" + "02" + "00" + "01" + "00"},
	} {
		b := [CQElem]byte{63: 0xa5}
		EncodeWC(&b, &c.wc, c.wc.ID, 2)
		if got := hex.EncodeToString(b[:48]); got != c.want || !bytes.Equal(b[48:], make([]byte, 16)) {
			t.Errorf("%s:\n got %s\nwant %s", c.why, got, c.want)
		}
	}
}

// FuzzDecode reads any bytes as requests: what comes of them stays inside of
// the element and of the limits.
func FuzzDecode(f *testing.F) {
	f.Add(element(256, map[int]any{12: 2, 196: 2, 216: 5}), uint8(3), uint8(16), false)
	f.Add(element(256, map[int]any{12: 0, 16: 8, 184: 16}), uint8(3), uint8(16), true)
	f.Add(element(256, map[int]any{12: 14, 184: 16}), uint8(0), uint8(0), false)
	f.Fuzz(func(t *testing.T, b []byte, sge, inline uint8, datagram bool) {
		l := Limits{SGE: int(sge % 33), Inline: int(inline), Datagram: datagram}
		e := make([]byte, ShapeFor(1, SendElem(l.SGE, l.Inline)).Elem)
		copy(e, b)
		var s Send
		switch st := s.Decode(e, l); st {
		case ib.StatusSuccess:
			if len(s.WR.SGList) > l.SGE || len(s.WR.Inline) > max(l.Inline, 8) {
				t.Fatalf("%d entries, %d bytes of inline data", len(s.WR.SGList), len(s.WR.Inline))
			}
			if s.WR.Inline != nil && (len(s.WR.SGList) > 0 || !s.WR.Opcode.Is(ib.OpCarries)) {
				t.Fatalf("inline data of %v", s.WR.Opcode)
			}
			if s.WR.Opcode.Is(ib.OpAtomic) && ib.TotalLength(s.WR.SGList) > 8 {
				t.Fatalf("an atomic of %d bytes", ib.TotalLength(s.WR.SGList))
			}
		case ib.StatusLocQPOpErr, ib.StatusLocLenErr:
		default:
			t.Fatal(st)
		}
		re := make([]byte, ShapeFor(1, RecvElem(l.SGE)).Elem)
		copy(re, b)
		if _, list, st := DecodeRecv(re, l.SGE, nil); len(list) > l.SGE || st != ib.StatusSuccess && len(list) > 0 {
			t.Fatalf("%d entries, %v", len(list), st)
		}
	})
}

// A ring that changes while it is read gives errors and odd requests, no more.
func TestChangesWhileRead(t *testing.T) {
	t.Parallel()
	l := Limits{SGE: 3, Inline: 48}
	s := ShapeFor(7, SendElem(l.SGE, l.Inline))
	mem := aligned(s.Size() + 64)
	guard := mem[s.Size():]
	var c Consumer
	if err := c.Init(mem[:s.Size()], s); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	defer close(stop)
	go fake.Scribble(stop, mem[:s.Size()])
	e := make([]byte, s.Elem)
	var taken, bad int
	for ; taken < 2000 || bad < 100; runtime.Gosched() {
		n, err := c.Waiting()
		if err != nil {
			bad++
			c.Clear()
		}
		for range min(n, 3) {
			pos := c.Take(e)
			taken++
			var w Send
			if st := w.Decode(e, l); st == ib.StatusSuccess && (len(w.WR.SGList) > 3 || len(w.WR.Inline) > 48) {
				t.Fatalf("%+v", w.WR)
			}
			c.Release(pos + 1)
		}
	}
	if !bytes.Equal(guard, bytes.Repeat([]byte{0xa5}, 64)) {
		t.Error("something was written behind the ring")
	}
}

// Requests are decoded into their place, one after the other.
func TestDecodeInPlace(t *testing.T) {
	t.Parallel()
	var wrs [2]ib.SendWR
	var sends [2]Send
	for i := range sends {
		sends[i].WR = &wrs[i]
		e := element(256, map[int]any{0: uint64(i + 5), 12: 2, 184: 8, 196: 1, 208: uint64(0x1000 * (i + 1)), 216: 8, 220: 1})
		if st := sends[i].Decode(e, Limits{SGE: 3}); st != ib.StatusSuccess {
			t.Fatal(st)
		}
	}
	for i, w := range wrs {
		if w.ID != uint64(i+5) || w.Opcode != ib.OpSend || len(w.SGList) != 1 || w.SGList[0].Addr != uint64(0x1000*(i+1)) {
			t.Errorf("request %d: %+v", i, w)
		}
	}
}

// BenchmarkDecode reads a SEND with one entry into its place.
func BenchmarkDecode(b *testing.B) {
	e := element(256, map[int]any{0: uint64(7), 12: 2, 16: 2, 184: 8, 196: 1, 208: uint64(0x1000), 216: 8, 220: 1})
	var wrs [64]ib.SendWR
	var sends [64]Send
	for i := range sends {
		sends[i].WR = &wrs[i]
	}
	b.ReportAllocs()
	for i := range b.N {
		if sends[i%64].Decode(e, Limits{SGE: 3}) != ib.StatusSuccess {
			b.Fatal("it is refused")
		}
	}
}
