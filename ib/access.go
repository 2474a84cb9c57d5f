package ib

import (
	"fmt"
	"strings"
)

// Access is a set of rights to memory, combined with |, with the bits of
// ibv_access_flags. Reading by the own device needs none. Of the other bits of
// ibv_access_flags, RELAXED_ORDERING is accepted without effect.
type Access uint32

// Access rights (IBTA 10.6.3).
const (
	// LocalWrite: the device may write: receives, READs, atomics, and all
	// that the peer writes.
	LocalWrite Access = 1 << 0
	// RemoteWrite: the peer may WRITE. It needs LocalWrite.
	RemoteWrite Access = 1 << 1
	// RemoteRead: the peer may READ.
	RemoteRead Access = 1 << 2
	// RemoteAtomic: the peer may do atomics. It needs LocalWrite.
	RemoteAtomic Access = 1 << 3
	// MWBind: memory windows may be bound to the region, see MW.
	MWBind Access = 1 << 4
	// ZeroBased: the wire addresses of a region or of a window of type 2
	// begin at 0. For a region package verbs has the option ZeroBased.
	ZeroBased Access = 1 << 5
	// OnDemand: the region costs nothing until it is touched, whatever its
	// length. Those of MapFile and RegisterMemory never cost more.
	// AllocMemory takes addresses and no memory with it, so that there may
	// be more of them than the machine has memory (on Linux).
	OnDemand Access = 1 << 6
	// FlushGlobal: the peer may ask by OpFlush that what it wrote is
	// visible to all.
	FlushGlobal Access = 1 << 8
	// FlushPersistent: the peer may ask by OpFlush that what it wrote is on
	// stable storage. The region must be of MapFile, on a file that is not
	// in memory itself (tmpfs), with LocalWrite; others are refused.
	FlushPersistent Access = 1 << 9
)

// RelaxedOrdering is a hint without effect here.
const RelaxedOrdering Access = 1 << 20

// AccessHints are the bits that a provider ignores when it does not know them
// (IBV_ACCESS_OPTIONAL_RANGE).
const AccessHints Access = 0x3ff00000

// AccessMask holds every bit that an Access may have.
const AccessMask = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic | MWBind | ZeroBased |
	OnDemand |
	FlushGlobal | FlushPersistent | AccessHints

var accessNames = []struct {
	bit  Access
	name string
}{
	{LocalWrite, "LocalWrite"},
	{RemoteWrite, "RemoteWrite"},
	{RemoteRead, "RemoteRead"},
	{RemoteAtomic, "RemoteAtomic"},
	{MWBind, "MWBind"},
	{ZeroBased, "ZeroBased"},
	{OnDemand, "OnDemand"},
	{FlushGlobal, "FlushGlobal"},
	{FlushPersistent, "FlushPersistent"},
	{RelaxedOrdering, "RelaxedOrdering"},
}

// String lists the rights, as in "LocalWrite|RemoteRead"; no right is
// "LocalRead", which every region has.
func (a Access) String() string {
	if a == 0 {
		return "LocalRead"
	}
	var parts []string
	for _, n := range accessNames {
		if a&n.bit != 0 {
			parts = append(parts, n.name)
			a &^= n.bit
		}
	}
	if a != 0 {
		parts = append(parts, fmt.Sprintf("%#x", uint32(a)))
	}
	return strings.Join(parts, "|")
}
