package qp

import (
	"slices"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// wireOps are the operations that send packets.
func wireOps() []ib.Opcode {
	return slices.DeleteFunc(ib.Opcodes(), func(op ib.Opcode) bool { return op.Is(ib.OpLocal) })
}

// keyFor returns a key for a request of e to invalidate: one that can be, if it
// is of this side.
func keyFor(e *testEnd, op ib.Opcode) ib.Key {
	if !op.Is(ib.OpInvalidates) {
		return 99
	}
	r, err := e.table.Register(e.pd, memreg.Local(make([]byte, 8)), memreg.Options{Invalidatable: true})
	if err != nil {
		panic(err)
	}
	return r.RKey()
}
