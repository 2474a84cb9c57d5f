package server

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// places is a listener with a bounded number of connections. A new one always
// has a place: when all are taken, the oldest of a stranger goes, which has not
// shown the token and is not being answered. So silent connections keep no
// client out.
type places struct {
	net.Listener
	most, perHost int // connections in all; of strangers of one address

	mu  sync.Mutex
	all []*guest // the oldest first
}

// guest is a connection that has a place.
type guest struct {
	net.Conn
	places *places
	host   netip.Addr

	// Guarded by places.mu:
	known  bool // it has shown the token
	served int  // requests that are being answered
}

func newPlaces(ln net.Listener, most, perHost int) *places {
	return &places{Listener: ln, most: most, perHost: perHost}
}

func (p *places) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		g := &guest{Conn: c, places: p, host: addressOf(c.RemoteAddr())}
		victim, ok := p.enter(g)
		if victim != nil {
			_ = victim.Conn.Close() // its server learns it, and closes it once more
		}
		if ok {
			return g, nil
		}
		_ = c.Close() // whatever it says
	}
}

// addressOf returns what the places of strangers count by: an IPv4 address, or
// a network of 64 bits of IPv6, which one host may have.
func addressOf(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip
	}
	n, _ := ip.Prefix(64) // of IPv6 it is possible
	return n.Addr()
}

// enter gives a connection a place, and takes it from another one if need be.
// It reports whether there was one.
func (p *places) enter(g *guest) (victim *guest, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := 0
	for _, o := range p.all {
		if !o.known && o.host == g.host {
			of++
		}
	}
	switch {
	case of >= p.perHost:
		victim = p.oldest(func(o *guest) bool { return !o.known && o.host == g.host })
	case len(p.all) < p.most:
		p.all = append(p.all, g)
		return nil, true
	default:
		if victim = p.oldest(func(o *guest) bool { return !o.known }); victim == nil {
			victim = p.oldest(func(*guest) bool { return true })
		}
	}
	if victim == nil {
		return nil, false
	}
	p.remove(victim)
	p.all = append(p.all, g)
	return victim, true
}

// oldest returns the oldest connection that may go and fits.
func (p *places) oldest(fits func(*guest) bool) *guest {
	i := slices.IndexFunc(p.all, func(g *guest) bool { return g.served == 0 && fits(g) })
	if i < 0 {
		return nil
	}
	return p.all[i]
}

func (p *places) remove(g *guest) {
	if i := slices.Index(p.all, g); i >= 0 {
		p.all = slices.Delete(p.all, i, i+1)
	}
}

func (g *guest) Close() error {
	g.places.mu.Lock()
	g.places.remove(g)
	g.places.mu.Unlock()
	return g.Conn.Close()
}

type guestKey struct{}

// withGuest is http.Server.ConnContext.
func withGuest(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, guestKey{}, c)
}

// serving says that a request is answered that may have an answer, until done
// is called. known says that it has shown the token.
func serving(r *http.Request, known bool) (done func()) {
	g, ok := r.Context().Value(guestKey{}).(*guest)
	if !ok {
		return func() {}
	}
	g.places.mu.Lock()
	defer g.places.mu.Unlock()
	g.known = g.known || known
	g.served++
	return func() {
		g.places.mu.Lock()
		g.served--
		g.places.mu.Unlock()
	}
}
