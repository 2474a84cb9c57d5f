package abi

import (
	"bytes"
	"encoding/binary"
	"testing"

	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
)

func TestPlainCommand(t *testing.T) {
	want := RegMRReq{Response: 1, Start: 0x2000, Length: 3, HcaVa: 4, PdHandle: 5, AccessFlags: 6}
	r, errno := Parse(fake.Plain(RegMR, 12, want, []byte{7, 7, 7, 7}))
	if errno != 0 || r.Command != RegMR || r.Extended {
		t.Fatalf("Parse: %+v, %v", r, errno)
	}
	var got RegMRReq
	if errno := r.Decode(&got); errno != 0 || got != want {
		t.Fatalf("Decode: %+v, %v", got, errno)
	}
	if !bytes.Equal(r.Driver, []byte{7, 7, 7, 7}) {
		t.Errorf("driver's part: %v", r.Driver)
	}
	if b := r.Encode(RegMRResp{1, 2, 3}, nil); !bytes.Equal(b, []byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0}) {
		t.Errorf("reply: %v", b)
	}
}

// The driver's part of a reply comes after the core's room.
func TestExtendedCommand(t *testing.T) {
	r, errno := Parse(fake.Extended(CreateCQ, 24, 16, ExCreateCQReq{CQInit: CQInit{UserHandle: 9, Cqe: 5}}))
	if errno != 0 || r.Command != CreateCQ || !r.Extended {
		t.Fatalf("Parse: %+v, %v", r, errno)
	}
	var got ExCreateCQReq
	if errno := r.DecodeExtended(&got, 28); errno != 0 || got.UserHandle != 9 || got.Cqe != 5 {
		t.Fatalf("DecodeExtended: %+v, %v", got, errno)
	}
	b := r.Encode(ExCreateCQResp{ResponseLength: 16}, MMInfo{Offset: 0xab})
	if len(b) != 40 || b[12] != 16 || b[24] != 0xab {
		t.Errorf("reply of %d bytes: %v", len(b), b)
	}
}

// An extended command may be shorter, and longer by zeros.
func TestExtendedLengths(t *testing.T) {
	whole := fake.Extended(CreateQP, 40, 32, ExCreateQPReq{QPInit: QPInit{UserHandle: 3}, SourceQpn: 4})
	for _, c := range []struct {
		name  string
		words int // of 8 bytes, more or less
		tail  byte
		want  Errno
	}{
		{"as it is", 0, 0, 0},
		{"shorter", -1, 0, 0},
		{"too short", -2, 0, ENOSPC},
		{"longer", 2, 0, 0},
		{"an unknown field", 1, 1, EOPNOTSUPP},
	} {
		b := bytes.Clone(whole)
		if c.words < 0 {
			b = b[:len(b)+8*c.words]
		} else {
			b = append(b, make([]byte, 8*c.words)...)
		}
		if c.tail != 0 {
			b[len(b)-1] = c.tail
		}
		binary.LittleEndian.PutUint16(b[4:], uint16((len(b)-headerLen-exHeaderLen)/8))
		r, errno := Parse(b)
		if errno != 0 {
			t.Fatalf("%s: %v", c.name, errno)
		}
		var got ExCreateQPReq
		if errno := r.DecodeExtended(&got, 56); errno != c.want {
			t.Errorf("%s: %v, want %v", c.name, errno, c.want)
		}
	}
}

func TestBadHeaders(t *testing.T) {
	ok := fake.Plain(AllocPD, 4, AllocPDReq{})
	ex := fake.Extended(QueryDevice, 304, 0, ExQueryDeviceReq{})
	edit := func(b []byte, off int, v ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[off:], v)
		return b
	}
	for name, b := range map[string][]byte{
		"nothing":             nil,
		"half a header":       ok[:6],
		"a shorter write":     ok[:12],
		"a longer write":      append(bytes.Clone(ok), 0, 0, 0, 0),
		"unknown flags":       edit(ok, 1, 1),
		"half of the second":  ex[:20],
		"words of the driver": edit(ex, 16, 1),
		"reserved":            edit(ex, 20, 1),
		"room without place":  edit(ex, 8, 0, 0, 0, 0, 0, 0, 0, 0),
		"place without room":  edit(ex, 6, 0, 0),
		"too long":            make([]byte, maxCommand+1),
	} {
		if _, errno := Parse(b); errno != EINVAL {
			t.Errorf("%s: %v, want EINVAL", name, errno)
		}
	}
	r, _ := Parse(fake.Plain(RegMR, 0, AllocPDReq{}))
	if errno := r.Decode(&RegMRReq{}); errno != ENOSPC {
		t.Errorf("a short command: %v, want ENOSPC", errno)
	}
}

// A reply is never longer than the room for it.
func TestReplyRoom(t *testing.T) {
	r, _ := Parse(fake.Plain(QueryDevice, 12, QueryDeviceReq{}))
	if b := r.Encode(QueryDeviceResp{}, nil); len(b) != 12 {
		t.Errorf("%d bytes", len(b))
	}
	r, _ = Parse(fake.Extended(QueryDevice, 16, 8, ExQueryDeviceReq{}))
	if b := r.Encode(ExQueryDeviceResp{}, MMInfo{}); len(b) != 24 {
		t.Errorf("%d bytes", len(b))
	}
}

// FuzzCommand parses what a program wrote, decodes it as everything, and
// encodes replies.
func FuzzCommand(f *testing.F) {
	f.Add(fake.Plain(RegMR, 12, RegMRReq{}))
	f.Add(fake.Plain(ModifySRQ, 0, ModifySRQReq{}, []byte{1, 2, 3, 4, 5, 6, 7, 8}))
	f.Add(fake.Extended(CreateQP, 40, 32, ExCreateQPReq{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range []any{&RegMRReq{}, &CreateQPReq{}, &ExCreateQPReq{}, &ModifySRQReq{}, &ExModifyQPReq{}} {
			r, errno := Parse(b)
			if errno != 0 {
				return
			}
			if r.Extended {
				errno = r.DecodeExtended(v, 8)
			} else {
				errno = r.Decode(v)
			}
			if errno != 0 {
				continue
			}
			if out := r.Encode(CreateQPResp{}, CreateQPDriverResp{}); len(out) > r.coreRoom+r.driverRoom {
				t.Fatalf("%d bytes of reply with room for %d+%d", len(out), r.coreRoom, r.driverRoom)
			}
		}
	})
}
