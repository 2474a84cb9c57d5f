package verbs

import (
	"fmt"

	"github.com/gosoftroce/rocev2/hca"
)

// XRCD is an XRC domain (IBTA A14). With XRC one connection to a host serves
// all its programs, or threads: each has an SRQ in the domain, and a request
// names the one that it is for.
//
//	x, err := dev.OpenXRCD()
//	srq, err := pd.CreateSRQ(verbs.SRQConfig{XRCD: x, CQ: cq})
//	qp, err := pd.CreateQP(verbs.QPConfig{Type: verbs.XRCTarget, XRCD: x})
//
// On the other side, a queue pair of type XRCInitiator is connected to the
// target, and sets SendWR.RemoteSRQN to what srq.Number() is here. The target
// only receives, and the initiator only sends.
//
// A request that names a queue which is not in the domain of the target, or not
// any more, is refused: both queue pairs go to ERR.
type XRCD struct {
	dev  *Device
	core *hca.XRCD
}

// OpenXRCD makes an XRC domain. The error wraps ErrClosed or ErrNoResources.
func (d *Device) OpenXRCD() (*XRCD, error) {
	core, err := d.context.OpenXRCD()
	if err != nil {
		return nil, fmt.Errorf("verbs: open an XRC domain: %w", err)
	}
	return &XRCD{dev: d, core: core}, nil
}

// Device returns the device of the domain.
func (x *XRCD) Device() *Device { return x.dev }

// Close destroys the domain. While it has SRQs, or XRCTargets, that is refused
// with ErrInUse: close them first. Closing the device closes all in the right
// order.
func (x *XRCD) Close() error { return closed("XRC domain", x.core.Close()) }
