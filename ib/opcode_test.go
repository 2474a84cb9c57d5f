package ib

import (
	"slices"
	"testing"
)

// The numbers and names of ibv_wr_opcode and ibv_wc_opcode, written out.
func TestOpcodes(t *testing.T) {
	t.Parallel()
	want := map[Opcode]struct {
		number uint32
		name   string
		wc     WCOpcode
	}{
		OpWrite:       {0, "RDMA_WRITE", 1},
		OpWriteImm:    {1, "RDMA_WRITE_WITH_IMM", 1},
		OpSend:        {2, "SEND", 0},
		OpSendImm:     {3, "SEND_WITH_IMM", 0},
		OpRead:        {4, "RDMA_READ", 2},
		OpCompareSwap: {5, "ATOMIC_CMP_AND_SWP", 3},
		OpFetchAdd:    {6, "ATOMIC_FETCH_AND_ADD", 4},
		OpSendInv:     {9, "SEND_WITH_INV", 0},
		OpFlush:       {14, "FLUSH", 8},
		OpAtomicWrite: {15, "ATOMIC_WRITE", 9},
		OpLocalInv:    {7, "LOCAL_INV", 6},
		OpBindMW:      {8, "BIND_MW", 5},
		OpReadInv:     {16, "RDMA_READ_WITH_INV", 2},
		OpRegMR:       {17, "REG_MR", 10},
	}
	for o := range Opcode(255) {
		w, known := want[o]
		if o.Known() != known || slices.Contains(Opcodes(), o) != known {
			t.Errorf("%v: known %v", o, o.Known())
		}
		if !known {
			continue
		}
		if o.IBV() != w.number || o.String() != w.name || o.Completion() != w.wc || OpcodeOfIBV(w.number) != o {
			t.Errorf("%v: number %d, completion %d", o, o.IBV(), o.Completion())
		}
		// What consumes a receive or names remote memory carries data
		// or is answered, and ATOMIC WRITE does both. A local operation
		// does none of this.
		if o.Is(OpLocal) != !o.Is(OpCarries|OpAnswered|OpRemote) ||
			!o.Is(OpLocal) && o.Is(OpCarries) == o.Is(OpAnswered) && o != OpAtomicWrite ||
			o.Is(OpAtomic|OpReads|OpEmptyAnswer) && !o.Is(OpAnswered) {
			t.Errorf("%v: flags %b", o, opcodes[o].flags)
		}
	}
	for _, n := range []uint32{10, 1 << 31, 1<<32 - 1} {
		if o := OpcodeOfIBV(n); o.Known() {
			t.Errorf("ibv opcode %d is %v", n, o)
		}
	}
}
