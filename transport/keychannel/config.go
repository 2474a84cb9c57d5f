package keychannel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/transport/guard"
)

// Port is the TCP port where owners of ports agree on keys: the number of
// RoCEv2's UDP port.
const Port = 4791

// Times.
const (
	Overlap    = time.Minute    // for which keys open packets that others have followed
	RenewAfter = 24 * time.Hour // keys are followed by others

	handshakeTime = 5 * time.Second
	renewLater    = 10 * time.Minute // by the side that was connected to, if the other one has not
	forgetAfter   = 2 * RenewAfter   // keys of a peer that is not there any more
)

// Config says where a side is, how it is authenticated, and which peers may
// come. Addr, TLS and Table are required.
type Config struct {
	Addr netip.Addr // of the port, with its zone
	Port uint16     // TCP; 0: Port

	// TLS has the certificate of this side, and the authorities of those of
	// peers: as RootCAs, which count for both directions. With
	// InsecureSkipVerify its VerifyConnection alone decides, as that of
	// secure.PSK does.
	TLS *tls.Config

	// AnyAddress has certificates be good for any host. Else that of a peer
	// must have its address as a subject alternative name.
	AnyAddress bool

	// Allow decides whether a peer may come that TLS has authenticated, and
	// returns its name for people. Nil allows all.
	Allow func(peer netip.Addr, state *tls.ConnectionState) (name string, err error)

	// Explain adds to an error of TLS what it means. Nil adds nothing.
	Explain func(error) error

	Table *guard.Table // that keys are entered in
	Slots int          // of the port; 0: 1
	Log   *slog.Logger // is told of new peers; nil: nothing is logged

	// Failed, if it is not nil, is told of each handshake that fails, of
	// which strangers can cause many. It may be called from several
	// goroutines, and must not wait.
	Failed func(Failure)

	// For tests: in place of TCP.
	Listen func() (net.Listener, error)
	Dial   func(ctx context.Context, peer netip.Addr) (net.Conn, error)
}

func (c *Config) fill() error {
	if c.Table == nil || !c.Addr.IsValid() {
		return errors.New("keychannel: Config.Addr and Table are required")
	}
	if err := checkTLS(c.TLS); err != nil {
		return err
	}
	if c.Port == 0 {
		c.Port = Port
	}
	c.Slots = max(c.Slots, 1)
	if c.Allow == nil {
		c.Allow = func(netip.Addr, *tls.ConnectionState) (string, error) { return "", nil }
	}
	if c.Explain == nil {
		c.Explain = func(err error) error { return err }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	at := netip.AddrPortFrom(c.Addr, c.Port)
	if c.Listen == nil {
		c.Listen = func() (net.Listener, error) { return net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at)) }
	}
	if c.Dial == nil {
		from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.Addr, 0))
		c.Dial = func(ctx context.Context, peer netip.Addr) (net.Conn, error) {
			d := net.Dialer{LocalAddr: from}
			return d.DialContext(ctx, "tcp", netip.AddrPortFrom(peer.WithZone(zoneFor(peer, c.Addr)), c.Port).String())
		}
	}
	return nil
}

// checkTLS reports what a configuration lacks for both sides to be
// authenticated.
func checkTLS(t *tls.Config) error {
	switch {
	case t == nil:
		return errors.New("keychannel: Config.TLS is required")
	case t.RootCAs == nil && !t.InsecureSkipVerify:
		return errors.New("keychannel: Config.TLS has no RootCAs: name the authorities that issue the certificates of peers")
	case t.InsecureSkipVerify && t.VerifyConnection == nil:
		return errors.New("keychannel: Config.TLS has InsecureSkipVerify and no VerifyConnection: any host could come; take InsecureSkipVerify out, and name authorities as RootCAs")
	case len(t.Certificates) == 0 && (t.GetCertificate == nil || t.GetClientCertificate == nil):
		return errors.New("keychannel: Config.TLS has no certificate of this side for both directions: set Certificates, or GetCertificate and GetClientCertificate")
	}
	return nil
}

// zoneFor returns the zone by which a peer is reached: that of this side, if
// the peer's address is link-local.
func zoneFor(peer, own netip.Addr) string {
	if peer.Is6() && peer.IsLinkLocalUnicast() {
		return own.Zone()
	}
	return ""
}

// client returns the configuration of TLS to connect to a peer with. name gets
// what Allow has returned.
func (c *Config) client(base *tls.Config, peer netip.Addr, name *string) *tls.Config {
	t := c.common(base, peer, name)
	t.InsecureSkipVerify = true // VerifyConnection does it
	// Also one of an authority that the peer does not name: its error says
	// what is wrong then, and not that there was none.
	if t.GetClientCertificate == nil && len(t.Certificates) > 0 {
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &t.Certificates[0], nil }
	}
	return t
}

// server returns the configuration of TLS for a peer that has connected.
func (c *Config) server(base *tls.Config, peer netip.Addr, name *string) *tls.Config {
	t := c.common(base, peer, name)
	t.GetConfigForClient = nil // which may ask for no certificate
	switch {
	case !base.InsecureSkipVerify:
		t.ClientCAs, t.ClientAuth = base.RootCAs, tls.RequireAndVerifyClientCert
	case t.ClientAuth != tls.RequireAndVerifyClientCert:
		t.ClientAuth = tls.RequireAnyClientCert // which VerifyConnection judges
	}
	return t
}

// common decides about the peer within the handshake, so that an alert of TLS
// tells it that it is refused.
func (c *Config) common(base *tls.Config, peer netip.Addr, name *string) *tls.Config {
	t := base.Clone()
	t.MinVersion, t.SessionTicketsDisabled, t.VerifyPeerCertificate = tls.VersionTLS13, true, nil // see check
	t.VerifyConnection = func(state tls.ConnectionState) (err error) {
		*name, err = c.check(base, peer, &state)
		return err
	}
	return t
}

// check decides whether a peer may come, and returns its name.
func (c *Config) check(base *tls.Config, peer netip.Addr, state *tls.ConnectionState) (name string, err error) {
	if !base.InsecureSkipVerify {
		if err := c.verify(base, peer, state); err != nil {
			return "", err
		}
	}
	if base.VerifyPeerCertificate != nil {
		var raw [][]byte
		for _, c := range state.PeerCertificates {
			raw = append(raw, c.Raw)
		}
		if err := base.VerifyPeerCertificate(raw, state.VerifiedChains); err != nil {
			return "", err
		}
	}
	if base.VerifyConnection != nil {
		if err := base.VerifyConnection(*state); err != nil {
			return "", err
		}
	}
	return c.Allow(peer, state)
}

// verify checks that an authority has issued the certificate of a peer, which
// crypto/tls has done of one that has connected; and that it is for the address
// of the peer, unless any does.
func (c *Config) verify(base *tls.Config, peer netip.Addr, state *tls.ConnectionState) (err error) {
	leaf := state.PeerCertificates[0]
	if len(state.VerifiedChains) == 0 {
		o := x509.VerifyOptions{Roots: base.RootCAs, Intermediates: x509.NewCertPool()}
		for _, c := range state.PeerCertificates[1:] {
			o.Intermediates.AddCert(c)
		}
		if base.Time != nil {
			o.CurrentTime = base.Time()
		}
		if state.VerifiedChains, err = leaf.Verify(o); err != nil {
			return err
		}
	}
	if c.AnyAddress {
		return nil
	}
	if err := leaf.VerifyHostname(peer.String()); err != nil { // its type is that of the name of a server
		return fmt.Errorf("the certificate of the peer is not for its address, %v (a subject alternative name): %v", peer, err)
	}
	return nil
}
