package abi_test

import (
	"encoding/binary"
	"testing"

	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// parsers decode the bodies of all commands; sizes are those of the structures
// in rdma_user_cm.h, without what is reserved at their ends.
var parsers = map[abi.Number]struct {
	size  int
	parse func(abi.Number, []byte) uabi.Errno
}{
	abi.CreateID:        {19, of(abi.Decode[abi.CreateIDCmd])},
	abi.DestroyID:       {12, id},
	abi.BindIP:          {40, bind},
	abi.ResolveIP:       {64, resolve},
	abi.ResolveRoute:    {8, id},
	abi.QueryRoute:      {12, id},
	abi.Connect:         {280, connect},
	abi.Listen:          {8, id},
	abi.Accept:          {288, connect},
	abi.Reject:          {264, of(abi.Decode[abi.RejectCmd])},
	abi.Disconnect:      {4, id},
	abi.InitQPAttr:      {16, id},
	abi.SetOption:       {24, of(abi.Decode[abi.SetOptionCmd])},
	abi.Notify:          {8, id},
	abi.JoinIPMulticast: {48, join},
	abi.LeaveMulticast:  {12, id},
	abi.MigrateID:       {16, id},
	abi.Query:           {16, id},
	abi.Bind:            {136, bind},
	abi.ResolveAddr:     {272, resolve},
	abi.JoinMulticast:   {152, join},
}

func of[T any](parse func(abi.Number, []byte) (T, uabi.Errno)) func(abi.Number, []byte) uabi.Errno {
	return func(n abi.Number, b []byte) uabi.Errno {
		_, e := parse(n, b)
		return e
	}
}

var id, bind, resolve, connect, join = of(abi.ParseID), of(abi.ParseBind), of(abi.ParseResolve), of(abi.ParseConnect), of(abi.ParseJoin)

// body returns a body in which sizes of addresses and data are good.
func body(n abi.Number, size int) []byte {
	b := make([]byte, size)
	switch n {
	case abi.Bind:
		b[4], b[8] = 16, abi.AFInet
	case abi.ResolveAddr:
		b[10], b[144] = 16, abi.AFInet
	case abi.JoinMulticast:
		b[20], b[24] = 16, abi.AFInet
	}
	return b
}

// A body is taken whole, and no shorter one.
func TestTruncation(t *testing.T) {
	t.Parallel()
	for n, p := range parsers {
		b := body(n, p.size)
		if e := p.parse(n, b); e != 0 {
			t.Errorf("command %d: %v", n, e)
		}
		for i := range b {
			if e := p.parse(n, b[:i]); e != uabi.EINVAL {
				t.Errorf("command %d, cut to %d bytes: %v; want EINVAL", n, i, e)
			}
		}
	}
}

// FuzzParse decodes commands; what is decoded aliases nothing.
func FuzzParse(f *testing.F) {
	for n, p := range parsers {
		b := binary.LittleEndian.AppendUint32(nil, uint32(n))
		b = binary.LittleEndian.AppendUint16(b, uint16(p.size))
		f.Add(append(binary.LittleEndian.AppendUint16(b, 336), body(n, p.size)...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, e := abi.Parse(b)
		if e != 0 {
			return
		}
		if len(c.In) > len(b)-8 || c.Out > 0xffff {
			t.Fatalf("%d bytes, room for %d, of %d", len(c.In), c.Out, len(b))
		}
		if p, ok := parsers[c.Number]; ok {
			if e := p.parse(c.Number, c.In); e != 0 && e != uabi.EINVAL {
				t.Fatalf("command %d: %v", c.Number, e)
			}
		}
	})
}

// Answers have the sizes of their structures, are cut to those of older
// programs, and are none where there is no room for those.
func TestSizes(t *testing.T) {
	t.Parallel()
	var r abi.Route
	var e abi.Event
	for what, c := range map[string]struct {
		encode    func(room int) []byte
		size, old int
	}{
		"QUERY_ROUTE":     {func(n int) []byte { return abi.RouteReply(&r, n) }, 208, 200},
		"QUERY, address":  {func(n int) []byte { return abi.AddrReply(&r, n) }, 280, 272},
		"QUERY, GID":      {func(n int) []byte { return abi.GIDReply(&r, 1, 2, n) }, 280, 272},
		"GET_EVENT":       {e.Encode, 336, 324},
		"QUERY, no path":  {func(n int) []byte { return abi.PathReply(&r, n) }, 8, 8},
		"QUERY, one path": {func(n int) []byte { return abi.PathReply(&abi.Route{Path: &abi.Path{}}, n) }, 80, 80},
	} {
		if n := len(c.encode(1000)); n != c.size {
			t.Errorf("%s: %d bytes; want %d", what, n, c.size)
		}
		if n := len(c.encode(c.old)); n != c.old {
			t.Errorf("%s: %d bytes for room of %d", what, n, c.old)
		}
		if what != "QUERY, one path" && c.encode(c.old-1) != nil {
			t.Errorf("%s: an answer for room of %d", what, c.old-1)
		}
	}
}
