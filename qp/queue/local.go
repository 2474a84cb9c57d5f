package queue

import "github.com/gosoftroce/rocev2/ib"

// A local operation has no use for the fields that say what goes on the wire.
// What it does is kept in those, so that slots are not larger for its sake:
//
//	Arg         the new key; of LOCAL_INV, the key
//	RKey        the key that the window, or the region, has
//	Remote      the address
//	CompareAdd  BIND_MW: the length
//	Swap        the rights, and above them, of BIND_MW, the key of the region

// setLocal keeps what a local operation does.
func (w *Send) setLocal(wr *ib.SendWR) {
	switch {
	case wr.Opcode == ib.OpBindMW:
		b := wr.Bind
		w.Arg, w.RKey, w.Remote, w.CompareAdd = uint32(b.NewKey), uint32(b.Window), b.Addr, b.Length
		w.Swap = uint64(b.Region)<<32 | uint64(b.Access)
	case wr.Opcode == ib.OpRegMR:
		g := wr.Reg
		w.Arg, w.RKey, w.Remote, w.Swap = uint32(g.NewKey), uint32(g.Region), g.Addr, uint64(g.Access)
	}
}

// Bind returns what OpBindMW does.
func (w *Send) Bind() ib.BindMW {
	return ib.BindMW{Window: ib.Key(w.RKey), NewKey: ib.Key(w.Arg), Region: ib.Key(w.Swap >> 32),
		Addr: w.Remote, Length: w.CompareAdd, Access: ib.Access(w.Swap)}
}

// Reg returns what OpRegMR does.
func (w *Send) Reg() ib.RegMR {
	return ib.RegMR{Region: ib.Key(w.RKey), NewKey: ib.Key(w.Arg), Addr: w.Remote, Access: ib.Access(w.Swap)}
}
