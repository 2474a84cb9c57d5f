package verbs

import "github.com/gosoftroce/rocev2/rocev2"

// BindMW is what OpBindMW does: it lets a memory window stand for a part of a
// region (IBTA 10.6.7.2). Of length 0 it takes what the window stood for away.
type BindMW struct {
	Window Key    // the current rkey of the window
	NewKey Key    // type 2: the rkey from now on, with a low byte of the program's choice
	Region Key    // lkey of the region
	Addr   uint64 // wire address in the region
	Length uint64 // bytes
	Access Access // what the window grants
}

// RegMR is what OpRegMR does: it makes the memory that was mapped to a fast
// registration region valid (IBTA 11.4.1.1).
type RegMR struct {
	Region Key    // the current key of the region
	NewKey Key    // its keys from now on, with a low byte of the program's choice
	Addr   uint64 // wire address of the first byte
	Access Access // of both keys
}

// FlushType says for whom FLUSH makes bytes visible. The constants below are
// the types, which are combined with |.
type FlushType = rocev2.FlushType

// FlushLevel says which bytes FLUSH is about.
type FlushLevel = rocev2.FlushLevel

// Types and levels of FLUSH (IBTA A19).
const (
	FlushVisible FlushType  = rocev2.FlushGlobal     // for everything that reads the memory
	FlushStable  FlushType  = rocev2.FlushPersistent // on stable storage
	FlushRange   FlushLevel = rocev2.FlushRange      // the bytes that the request names
	FlushWholeMR FlushLevel = rocev2.FlushRegion     // the whole region
)
