package conn

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/queue"
)

// CheckLocal says what is wrong with the request for a local operation.
func CheckLocal(wr *ib.SendWR) error {
	switch {
	case wr.Inline != nil:
		return ib.ErrInline
	case wr.Opcode == ib.OpBindMW && wr.Bind == nil:
		return ib.ErrNoBind
	case wr.Opcode == ib.OpLocalInv && wr.InvalidateKey == 0:
		return ib.ErrNoKey
	case wr.Opcode == ib.OpRegMR && wr.Reg == nil:
		return ib.ErrNoReg
	}
	return nil
}

// ExecuteLocal carries out request i, a local operation (IBTA 10.6.5, 10.6.7),
// or the invalidation that goes with a READ.
func (c *Conn) ExecuteLocal(s *queue.SendRing, i uint32) ib.Fault {
	w := s.At(i)
	switch w.Opcode {
	case ib.OpBindMW:
		b := s.Bind(i)
		return c.Memory.Bind(c.PD, c.QPN, &b)
	case ib.OpRegMR:
		g := s.Reg(i)
		return c.Memory.RegisterFast(c.PD, &g)
	}
	return c.Memory.Invalidate(c.PD, c.QPN, ib.Key(w.Arg))
}

// LocalStatus is the status of a local operation that has failed (IBTA 11.6.2).
func LocalStatus(op ib.Opcode) ib.Status {
	if op == ib.OpBindMW {
		return ib.StatusMWBindErr
	}
	return ib.StatusLocQPOpErr
}
