package memreg

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
)

// Programs wait for a message by watching its end with Load64, so what is
// written last has to be seen last. Some processors keep the order of stores.
// On others a copy shows its bytes in any order.

// keepsOrder says that stores are seen in the order in which they are made.
const keepsOrder = runtime.GOARCH == "amd64" || runtime.GOARCH == "386" || runtime.GOARCH == "s390x"

// CopyInLast is CopyIn for the end of a message. A reader that sees the last
// byte of src with Load64, or its last 8 if they are an aligned word, sees all
// that was written before.
func (v View) CopyInLast(off uint64, src []byte) ib.Fault {
	if keepsOrder {
		return v.CopyIn(off, src)
	}
	return v.copyInLast(off, src, orderStores)
}

// copyInLast is CopyInLast where the order is not kept: order is called between
// all that was written before, in this packet and in those before it, and what
// one store writes at the end.
func (v View) copyInLast(off uint64, src []byte, order func()) ib.Fault {
	if !inside(off, uint64(len(src)), v.n) {
		return ib.FaultOutOfBounds
	}
	if head := len(src) - v.ending(off, len(src)); head > 0 {
		if f := v.CopyIn(off, src[:head]); f != ib.FaultNone {
			return f
		}
		src, off = src[head:], off+uint64(head)
	}
	order()
	return v.CopyIn(off, src)
}

// ending returns how many bytes at the end of n at off of the view one store
// writes.
func (v View) ending(off uint64, n int) int {
	end := v.off + off + uint64(n)
	if v.g != nil {
		end += uint64(uintptr(unsafe.Pointer(v.g.region.data))) // nil: the memory begins with a word
	}
	if n >= 8 && end%8 == 0 {
		return 8
	}
	return min(n, 1)
}

// orderStores makes all processors see the stores before it before those after
// it: a store that releases comes before a load that acquires.
func orderStores() {
	var a atomic.Uint32
	a.Store(1)
	a.Load()
}
