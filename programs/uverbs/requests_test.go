//go:build linux

package uverbs

import (
	"reflect"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/transport"
)

// Requests are counted by operation: those that were accepted, and no others.
func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	list := func(n uint32) []ib.SGE { return []ib.SGE{{Length: n}} }
	wrs := []ib.SendWR{
		{Opcode: ib.OpSend, SGList: list(10)}, {Opcode: ib.OpSendImm, SGList: list(1)}, {Opcode: ib.OpSend, Inline: make([]byte, 5)},
		{Opcode: ib.OpWrite, SGList: list(4096)}, {Opcode: ib.OpWrite, SGList: list(1)},
		{Opcode: ib.OpFetchAdd, SGList: list(8)}, {Opcode: ib.OpRead, SGList: list(1 << 20)},
	}
	var r Requests
	if n := r.add(wrs, 6); n != 1<<20 {
		t.Errorf("the longest has %d bytes", n)
	}
	r.add(wrs[:1], 1)
	r.add(wrs[:1], 0)
	r.add(nil, 0)
	want := []transport.UsedOperation{{Operation: "SEND", Requests: 4, Bytes: 26}, {Operation: "RDMA_WRITE", Requests: 2, Bytes: 4097}, {Operation: "FETCH_ADD", Requests: 1, Bytes: 8}}
	if got := r.Sum(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if n := (*Requests)(nil).add(wrs, 7); n != 1<<20 {
		t.Errorf("uncounted: %d bytes", n)
	}
}
