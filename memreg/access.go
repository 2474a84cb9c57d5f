package memreg

import (
	"errors"

	"github.com/gosoftroce/rocev2/ib"
)

// accessOptional are the bits that a provider ignores when it does not know
// them (IBV_ACCESS_OPTIONAL_RANGE).
const accessOptional ib.Access = 0x3ff00000

const accessKnown = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.MWBind |
	ib.ZeroBased | ib.FlushGlobal | ib.FlushPersistent | accessOptional

// faultOf turns what a Memory returned into a Fault: a Fault stays what it is,
// any other error is a MemoryFault. So is NotPresent, which is Present's to say.
func faultOf(err error) ib.Fault {
	if err == nil {
		return ib.FaultNone
	}
	if f, ok := err.(ib.Fault); ok && f != ib.FaultNone && f != ib.FaultNotPresent {
		return f // without what errors.As allocates
	}
	var f ib.Fault
	if errors.As(err, &f) && f != ib.FaultNone && f != ib.FaultNotPresent {
		return f
	}
	return ib.FaultMemory
}
