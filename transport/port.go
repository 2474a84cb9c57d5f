package transport

// PortState is the state of the port below a link.
type PortState uint8

// States of a port.
const (
	PortActive    PortState = iota // packets get through, as far as this host can tell
	PortDisabled                   // the interface is down
	PortNoCarrier                  // the interface is up; its cable or medium is not
	PortNoAddress                  // the link's address is not of this host any more
)

var portNames = [...]string{"active", "interface down", "no carrier", "address gone"}

func (s PortState) String() string {
	if int(s) < len(portNames) {
		return portNames[s]
	}
	return "unknown"
}

// PortStatus describes the port below a link as it is now.
type PortStatus struct {
	State     PortState
	Interface string // that has the address; empty if none is known
	Speed     int    // of the interface, in Mb/s; 0 if not known
}

// PortReporter is a Link that knows the port below it. A link that wraps
// another one passes the call on, as Wrapper does.
type PortReporter interface {
	// PortStatus asks the system. It may be called beside every other
	// method, and after Close.
	PortStatus() PortStatus
}

// StatusOf returns the status of the port below l. A link that cannot tell is
// taken to be active.
func StatusOf(l Link) PortStatus {
	if r, ok := l.(PortReporter); ok {
		return r.PortStatus()
	}
	return PortStatus{}
}

// PortChange is what has changed at the port below a link.
type PortChange uint8

// What may change.
const (
	PortWentDown    PortChange = iota // the interface, or its carrier
	PortCameUp                        // it is back
	PortAddrChanged                   // the link's address was taken from the host, or came back
)

// PortWatcher is a Link that tells when the port below it changes. A link that
// wraps another one passes the call on, as Wrapper does.
type PortWatcher interface {
	// WatchPort calls changed, on a goroutine of its own, for every change
	// from now on, until stop is called, which waits for it. Where the
	// system cannot tell, nothing is ever called.
	WatchPort(changed func(PortChange)) (stop func())
}

// WatchPort watches the port below l, if l can.
func WatchPort(l Link, changed func(PortChange)) (stop func()) {
	if w, ok := l.(PortWatcher); ok {
		return w.WatchPort(changed)
	}
	return func() {}
}
