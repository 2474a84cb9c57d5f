package rdma

import (
	"net"
	"net/netip"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rdma/secure"
)

// greet has the listener answer requests itself, or leave them to the program
// for ever.
func (l *Listener) greet(greets bool) {
	l.greeting.Lock()
	defer l.greeting.Unlock()
	switch {
	case greets && !l.asks && !l.greets:
		l.greets = true
		l.cm.Greet(l.reply)
	case !greets && !l.asks:
		l.asks = true
		l.cm.Greet(nil)
	}
}

// reply implements cm.Greeter.
func (l *Listener) reply(g *cm.Greeting) (cm.AcceptConfig, error) {
	h, native, err := l.admit(g.Remote.Addr().Unmap(), g.PrivateData)
	if err != nil {
		return cm.AcceptConfig{}, err
	}
	private := l.cfg.PrivateData
	if native {
		private = l.hello(h.secured, private)
	}
	return acceptConfig(h.secured, private), nil
}

// acceptConfig says how a connection is accepted.
func acceptConfig(secured bool, private []byte) cm.AcceptConfig {
	c := cm.AcceptConfig{PrivateData: private}
	if secured {
		c.Access = secure.Access
	}
	return c
}

// hello returns what this side says of itself to a native peer, and private.
func (l *Listener) hello(secured bool, private []byte) []byte {
	d := l.door(nil, secured) // as those of all devices
	h := hello{secured: secured, regions: d.exports.some.Load(), credits: baseWindow, size: uint32(d.hub.size), user: private}
	return h.encode()
}

// admit says what a peer is, or why it is refused.
func (l *Listener) admit(client netip.Addr, private []byte) (h hello, native bool, err error) {
	if h.user = private; !l.cfg.Foreign {
		h, native, err = parseHello(private)
	}
	switch {
	case err != nil:
	case l.cfg.TLS != nil && !h.secured && l.cfg.AdmitClear == nil:
		err = errOnlySecured
	case l.cfg.TLS == nil && h.secured:
		err = ErrNotSecured
	case l.conns.Load() >= int64(l.cfg.MaxConns):
		err = &RejectedError{Reason: cm.ReasonNoResources}
	case l.cfg.Admit != nil:
		err = l.cfg.Admit(client, !native)
	}
	if err == nil && l.cfg.AdmitClear != nil && !h.secured {
		err = l.cfg.AdmitClear(client)
	}
	return h, native, err
}

// client returns the address of a peer.
func client(a net.Addr) netip.Addr {
	if ap, ok := a.(*cm.Addr); ok {
		return ap.Addr().Unmap()
	}
	return netip.Addr{}
}
