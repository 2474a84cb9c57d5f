package verbs

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
