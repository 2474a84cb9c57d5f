package queue

import "github.com/gosoftroce/rocev2/ib"

// A local operation has no use for the fields that say what goes on the wire.
// What it does is kept in those, and in Operands:
//
//	Arg         the new key; of LOCAL_INV, the key
//	RKey        the key that the window, or the region, has
//	Remote      the address
//	CompareAdd  BIND_MW: the length
//	Swap        the rights, and above them, of BIND_MW, the key of the region

// setLocal keeps what a local operation does.
func (s *SendRing) setLocal(i uint32, w *Send, wr *ib.SendWR) {
	switch {
	case wr.Opcode == ib.OpBindMW:
		b := wr.Bind
		w.Arg, w.RKey, w.Remote = uint32(b.NewKey), uint32(b.Window), b.Addr
		s.setOperands(i, Operands{CompareAdd: b.Length, Swap: uint64(b.Region)<<32 | uint64(b.Access)})
	case wr.Opcode == ib.OpRegMR:
		g := wr.Reg
		w.Arg, w.RKey, w.Remote = uint32(g.NewKey), uint32(g.Region), g.Addr
		s.setOperands(i, Operands{Swap: uint64(g.Access)})
	}
}

// Bind returns what request i, an OpBindMW, does.
func (s *SendRing) Bind(i uint32) ib.BindMW {
	w, o := s.At(i), s.Operands(i)
	return ib.BindMW{Window: ib.Key(w.RKey), NewKey: ib.Key(w.Arg), Region: ib.Key(o.Swap >> 32),
		Addr: w.Remote, Length: o.CompareAdd, Access: ib.Access(o.Swap)}
}

// Reg returns what request i, an OpRegMR, does.
func (s *SendRing) Reg(i uint32) ib.RegMR {
	w := s.At(i)
	return ib.RegMR{Region: ib.Key(w.RKey), NewKey: ib.Key(w.Arg), Addr: w.Remote, Access: ib.Access(s.Operands(i).Swap)}
}
