package cm

import (
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// Option is a setting of an ID, for [ID.SetOption].
type Option func(*ID) error

// SetOption changes a setting: rdma_set_option, and what librdmacm has calls of
// its own for. The error says what is wrong with the value, or is a
// *StateError.
func (id *ID) SetOption(o Option) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	return o(id)
}

// WithType chooses the type of queue pair, UC for example, of an ID that does
// not listen or connect yet. Without it it is UD in the port spaces UDP and
// IPoIB, and else RC.
func WithType(typ verbs.QPType) Option {
	return func(id *ID) error {
		if err := id.state.want("SetOption(WithType)", idIdle, idBound, idAddrResolved, idRouteResolved); err != nil {
			return err
		}
		connected := typ == verbs.RC || typ == verbs.UC || typ == verbs.XRCInitiator || typ == verbs.XRCTarget
		if typ == verbs.UD && id.at.space != TCP || connected && !datagrams(id.at.space) {
			id.terms.typ = typ
			return nil
		}
		return fmt.Errorf("cm: port space %v is not for queue pairs of type %v", id.at.space, typ)
	}
}

// WithTOS sets the traffic class of what is sent, from Connect on
// (RDMA_OPTION_ID_TOS).
func WithTOS(class uint8) Option {
	return func(id *ID) error {
		id.terms.cfg.TrafficClass = class
		return nil
	}
}

// WithAckTimeout sets the code, up to 31, of the local ACK timeout
// (RDMA_OPTION_ID_ACK_TIMEOUT). 0 is the default, 14.
func WithAckTimeout(code uint8) Option {
	return func(id *ID) error {
		if code > 31 {
			return fmt.Errorf("cm: the ACK timeout is %d; it is a code up to 31", code)
		}
		id.terms.cfg.AckTimeout = code
		return nil
	}
}

// WithReuseAddr lets an ID share the port that it is bound to afterwards with
// others that have this option; at most one of them listens
// (RDMA_OPTION_ID_REUSEADDR).
func WithReuseAddr(on bool) Option {
	return func(id *ID) error {
		if err := id.state.want("SetOption(WithReuseAddr)", idIdle); err != nil {
			return err
		}
		id.at.reuse = on
		return nil
	}
}

// WithAFOnly has a listener on the unspecified IPv6 address leave IPv4 devices
// out (RDMA_OPTION_ID_AFONLY).
func WithAFOnly(on bool) Option {
	return func(id *ID) error {
		if err := id.state.want("SetOption(WithAFOnly)", idIdle); err != nil {
			return err
		}
		id.at.afOnly = on
		return nil
	}
}

// WithPatience has Connect ask again, for up to d, while no program listens on
// the peer's port: for programs whose sides start at the same time. d is at
// most 12 s. Without it, as with Linux, EventRejected comes at once. If an ID
// with it listens, requests that come within d after its Close wait for the
// next ID that listens on the port.
func WithPatience(d time.Duration) Option {
	return func(id *ID) error {
		id.patience = d
		return nil
	}
}

// WithoutECE has this side say nothing of itself when it connects. So does
// Linux, whose programs reject what they do not know, and end.
func WithoutECE() Option {
	return func(id *ID) error {
		id.terms.cfg.NoECE = true
		return nil
	}
}

// WithLocalECE says what this side says of itself, instead of what this
// software does (rdma_set_local_ece).
func WithLocalECE(ece ECE) Option {
	return func(id *ID) error {
		id.terms.localECE, id.terms.cfg.ECE, id.terms.cfg.NoECE = ece, ece, false
		return nil
	}
}
