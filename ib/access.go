package ib

import (
	"fmt"
	"strings"
)

// Access is a set of access rights, with the bits of ibv_access_flags. Reading
// by the local adapter is always allowed and has no bit.
type Access uint32

// Access rights of a region (IBTA 10.6.3).
const (
	LocalWrite      Access = 1 << 0  // the adapter may write
	RemoteWrite     Access = 1 << 1  // the peer may WRITE; needs LocalWrite
	RemoteRead      Access = 1 << 2  // the peer may READ
	RemoteAtomic    Access = 1 << 3  // the peer may do atomics; needs LocalWrite
	MWBind          Access = 1 << 4  // the region may get grants besides its keys: memory windows
	ZeroBased       Access = 1 << 5  // the same as memreg.Options.Base = memreg.BaseZero
	OnDemand        Access = 1 << 6  // pages are touched when they are accessed, not before
	FlushGlobal     Access = 1 << 8  // the peer may FLUSH for global visibility
	FlushPersistent Access = 1 << 9  // the peer may FLUSH to stable storage
	RelaxedOrdering Access = 1 << 20 // a hint without effect here
)

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
