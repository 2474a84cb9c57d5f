package transport

import "fmt"

// SourcePortOpener is a Link that must open a source port before it can send
// from it. A link that wraps another one passes the call on, as Wrapper
// does.
type SourcePortOpener interface {
	// OpenSourcePort makes the link ready for paths with SrcPort port and
	// returns port. Unless exact, it may return another port, which spreads
	// flows as well: when another process has the port, or when the link
	// has as many open as it can. A port stays open until the link is
	// closed. The call may run beside every other method.
	OpenSourcePort(port uint16, exact bool) (uint16, error)
}

// OpenSourcePort asks l for a source port before a path uses it. So a port that
// is not to be had is an error now, and not a failure of Send later. See
// SourcePortOpener for what it returns.
func OpenSourcePort(l Link, port uint16, exact bool) (uint16, error) {
	if o, ok := l.(SourcePortOpener); ok {
		return o.OpenSourcePort(port, exact)
	}
	if c := l.Capabilities(); !c.SourcePorts && port != 0 && port != c.Port {
		return 0, fmt.Errorf("transport: the link of %v sends from port %d only, not from %d", l.Addr(), c.Port, port)
	}
	return port, nil
}
