package verbs

import (
	"fmt"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/memreg"
)

// FastMR is a region that is registered by a work request, in the order of a
// send queue (fast registration, IBTA 10.6.3.3): it is free or valid. Map gives
// a free one memory, OpRegMR makes it valid under new keys, and OpLocalInv, or
// the peer's OpSendInv, makes it free again. Its methods may be called from any
// goroutine.
type FastMR struct {
	core *hca.FastMR
	fast *memreg.FastRegion
}

// AllocFastMR makes a fast registration region for at most maxBytes bytes. The
// error wraps ErrClosed or ErrNoResources, or says what is wrong with the size.
func (pd *PD) AllocFastMR(maxBytes int) (*FastMR, error) {
	core, err := pd.core.AllocFastMR(uint64(max(maxBytes, 0)))
	if err != nil {
		return nil, fmt.Errorf("verbs: allocate a fast registration region of %d bytes: %w", maxBytes, err)
	}
	return &FastMR{core: core, fast: core.Core()}, nil
}

// Map says which memory the region is of: the buffers, one after the other. It
// stays so until the next Map. They stay in place and alive as long as the
// region may be registered. A 64-bit word for atomics must lie in one of them.
// The error says that the region is valid, and must be invalidated first, or
// that there are too many bytes or none.
func (f *FastMR) Map(bufs ...[]byte) error {
	if err := f.fast.Map(memreg.Pieces(bufs...)); err != nil {
		return fmt.Errorf("verbs: map memory to a fast registration region: %w", err)
	}
	return nil
}

// Register returns a request that makes the region valid, for PostSend: with
// the wire address addr for the first byte, and rights. Its rkey will be
// Reg.NewKey of the request, whose low byte is one more than the present one.
// The program may choose another low byte. The lkey gets the same low byte, see
// LKeyWith. Requests that are posted after it may already use both keys.
//
// It fails with StatusLocQPOpErr, and [WC.Fault] says why: FaultState if the
// region is valid already, or no memory was mapped.
func (f *FastMR) Register(addr uint64, access Access) SendWR {
	key := f.RKey()
	return SendWR{Opcode: OpRegMR, Reg: &RegMR{Region: key, NewKey: nextKey(key), Addr: addr, Access: access}}
}

// Invalidate returns a request that makes the region free. It is carried out
// when all requests before it have completed.
func (f *FastMR) Invalidate() SendWR { return SendWR{Opcode: OpLocalInv, InvalidateKey: f.RKey()} }

// Valid reports whether the region is valid now.
func (f *FastMR) Valid() bool { return f.fast.Valid() }

// LKey returns the lkey that the region has, or had when it was last valid.
func (f *FastMR) LKey() Key { return f.fast.LKey() }

// RKey returns the rkey that the region has, or had when it was last valid.
func (f *FastMR) RKey() Key { return f.fast.RKey() }

// LKeyWith returns the lkey that goes with an rkey of the region, such as
// Reg.NewKey of a request that is not carried out yet.
func (f *FastMR) LKeyWith(rkey Key) Key { return f.LKey()&^0xff | rkey&0xff }

// Close frees the region, valid or not. Its keys are dead at once; when Close
// returns, no transfer touches the memory any more. It refuses while a window
// is bound to the region.
func (f *FastMR) Close() error { return closed("fast registration region", f.core.Close()) }
