package verbs

import (
	"fmt"

	"github.com/gosoftroce/rocev2/hca"
)

// MW is a memory window: a key for the peer that a work request makes stand for
// a part of a region, with rights of its own. That costs no more than any other
// request, and a peer that has had its turn loses the key the same way. Its
// methods may be called from any goroutine.
//
// A peer that uses a key which is not, or no longer, bound is refused as with
// any wrong key: its request completes with StatusRemAccessErr, this side gets
// EventQPAccessError, and both queue pairs are in ERR. So tell the peer to stop
// before the window is taken away; it is for a peer that does not obey.
type MW struct{ core *hca.MW }

// AllocMW makes a memory window, which is not bound. The error wraps ErrClosed
// or ErrNoResources, or says that there is no such type.
func (pd *PD) AllocMW(typ MWType) (*MW, error) {
	core, err := pd.core.AllocMW(typ)
	if err != nil {
		return nil, fmt.Errorf("verbs: allocate a memory window: %w", err)
	}
	return &MW{core: core}, nil
}

// Type returns the type of the window.
func (mw *MW) Type() MWType { return mw.core.Core().Type() }

// RKey returns the key that the window has now. That of a window which is not
// bound stands for nothing; BindTo names the window by it. It is 0 after Close.
func (mw *MW) RKey() Key { return mw.core.Core().RKey() }

// Bound reports whether the window stands for memory now.
func (mw *MW) Bound() bool { return mw.core.Core().Grant().Alive() }

// Remote returns what a peer must know to use the window as it is bound now.
// Its length is 0 if it is not bound.
func (mw *MW) Remote() RemoteMemory {
	g := mw.core.Core().Grant()
	if !g.Alive() {
		return RemoteMemory{}
	}
	return RemoteMemory{Addr: g.Addr(), Length: g.Len(), RKey: g.Key()}
}

// BindTo returns a request that binds the window to n bytes from offset off of
// a region, for PostSend. The window grants access: remote rights, and
// ZeroBasedWindow. The region needs MWBind, and LocalWrite for RemoteWrite and
// RemoteAtomic; other rights of its own do not matter. Region, window and queue
// pair are of one domain. While a window is bound to it the region cannot be
// closed.
//
// The request names the window by the key that it has now: post it before the
// next is made. A window of type 2 will have the key Bind.NewKey of the
// request, which is the present one with a low byte that is one more. The
// program may choose another low byte. What is posted after the request, such
// as a message that tells the peer the key, is sent when the window is bound.
// RKey and Remote return the new key when it has been carried out.
//
// A bind that is not possible fails with StatusMWBindErr, and [WC.Fault] says
// why.
func (mw *MW) BindTo(mr *MR, off, n int, access Access) SendWR {
	key := mw.RKey()
	r := mr.region()
	b := &BindMW{Window: key, Region: r.LKey(), Addr: r.Addr() + uint64(off), Length: uint64(n), Access: access}
	if mw.Type() == MWType2 {
		b.NewKey = nextKey(key)
	}
	return SendWR{Opcode: OpBindMW, Bind: b}
}

// nextKey returns a key with its low byte one more.
func nextKey(key Key) Key { return key&^0xff | (key+1)&0xff }

// Unbind returns a request that takes away what the window stands for: a bind
// to 0 bytes for type 1, OpLocalInv for type 2.
func (mw *MW) Unbind() SendWR {
	if mw.Type() == MWType2 {
		return SendWR{Opcode: OpLocalInv, InvalidateKey: mw.RKey()}
	}
	return SendWR{Opcode: OpBindMW, Bind: &BindMW{Window: mw.RKey()}}
}

// Close frees the window, bound or not. Its key is dead at once; when Close
// returns, no transfer goes through it any more.
func (mw *MW) Close() error { return mw.core.Close() }
