package verbs

import "github.com/gosoftroce/rocev2/rocev2"

// FlushType is what OpFlush waits for. The constants below are the types, which
// are combined with |. 0 is none, and refused.
type FlushType = rocev2.FlushType

// The types of OpFlush, placement types in IBTA A19.
const (
	// GlobalVisibility: everything in the peer's machine sees the bytes.
	GlobalVisibility FlushType = rocev2.FlushGlobal
	// Persistence: the bytes are on stable storage, and survive the loss of
	// power there.
	Persistence FlushType = rocev2.FlushPersistent
)

// FlushLevel says which bytes OpFlush is about.
type FlushLevel = rocev2.FlushLevel

// The levels of OpFlush, selectivity levels in IBTA A19.
const (
	// FlushRange: SendWR.Length bytes from SendWR.Remote on.
	FlushRange FlushLevel = rocev2.FlushRange
	// FlushRegion: all that the key of SendWR.Remote stands for. Address
	// and length do not matter.
	FlushRegion FlushLevel = rocev2.FlushRegion
)
