package memreg

import (
	"errors"

	"github.com/gosoftroce/rocev2/ib"
)

// faultOf turns what a Memory returned into a Fault. A Fault stays what it is.
// Any other error is ib.FaultMemory, and so is ib.FaultNotPresent: only Present
// may say that.
func faultOf(err error) ib.Fault {
	if err == nil {
		return ib.FaultNone
	}
	if f, ok := err.(ib.Fault); ok && f != ib.FaultNone && f != ib.FaultNotPresent {
		return f // errors.As would allocate
	}
	var f ib.Fault
	if errors.As(err, &f) && f != ib.FaultNone && f != ib.FaultNotPresent {
		return f
	}
	return ib.FaultMemory
}
