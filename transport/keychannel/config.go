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
	Log   *slog.Logger // nil: nothing is logged

	// For tests: in place of TCP.
	Listen func() (net.Listener, error)
	Dial   func(ctx context.Context, peer netip.Addr) (net.Conn, error)
}

func (c *Config) fill() error {
	if c.TLS == nil || c.Table == nil || !c.Addr.IsValid() {
		return errors.New("keychannel: Config.Addr, TLS and Table are required")
	}
	if c.TLS.RootCAs == nil && !c.TLS.InsecureSkipVerify {
		return errors.New("keychannel: Config.TLS has no RootCAs: name the authorities that issue the certificates of peers")
	}
	if c.TLS.InsecureSkipVerify && c.TLS.VerifyConnection == nil {
		return errors.New("keychannel: Config.TLS has InsecureSkipVerify and no VerifyConnection: any host could come; take InsecureSkipVerify out, and name authorities as RootCAs")
	}
	if len(c.TLS.Certificates) == 0 && (c.TLS.GetCertificate == nil || c.TLS.GetClientCertificate == nil) {
		return errors.New("keychannel: Config.TLS has no certificate of this side for both directions: set Certificates, or GetCertificate and GetClientCertificate")
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

// zoneFor returns the zone by which a peer is reached: that of this side, if
// the peer's address is link-local.
func zoneFor(peer, own netip.Addr) string {
	if peer.Is6() && peer.IsLinkLocalUnicast() {
		return own.Zone()
	}
	return ""
}

// client returns the configuration of TLS to connect to a peer with.
func (c *Config) client(base *tls.Config, peer netip.Addr) *tls.Config {
	t := common(base)
	switch {
	case base.InsecureSkipVerify:
	case c.AnyAddress:
		t.InsecureSkipVerify = true // but for the name, in verify
		t.VerifyConnection = func(state tls.ConnectionState) error {
			if err := verify(&state, base); err != nil || base.VerifyConnection == nil {
				return err
			}
			return base.VerifyConnection(state)
		}
	default:
		t.ServerName = peer.String()
	}
	return t
}

// server returns the configuration of TLS for those that connect.
func (c *Config) server(base *tls.Config) *tls.Config {
	t := common(base)
	t.GetConfigForClient = nil // which may ask for no certificate
	switch {
	case !base.InsecureSkipVerify:
		t.ClientCAs, t.ClientAuth = base.RootCAs, tls.RequireAndVerifyClientCert
	case t.ClientAuth != tls.RequireAndVerifyClientCert:
		t.ClientAuth = tls.RequireAnyClientCert // which VerifyConnection judges
	}
	return t
}

func common(base *tls.Config) *tls.Config {
	t := base.Clone()
	t.MinVersion, t.SessionTicketsDisabled = tls.VersionTLS13, true
	return t
}

// verify checks that an authority has issued the certificate of a peer, for any
// name.
func verify(state *tls.ConnectionState, base *tls.Config) error {
	between := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	o := x509.VerifyOptions{Roots: base.RootCAs, Intermediates: between}
	if base.Time != nil {
		o.CurrentTime = base.Time()
	}
	_, err := state.PeerCertificates[0].Verify(o)
	return err
}

// check decides whether a peer may come that has authenticated itself.
func (c *Config) check(base *tls.Config, peer netip.Addr, state *tls.ConnectionState) (name string, err error) {
	if !base.InsecureSkipVerify && !c.AnyAddress {
		if err := state.PeerCertificates[0].VerifyHostname(peer.String()); err != nil {
			return "", fmt.Errorf("the certificate of the peer is not for its address: %w", err)
		}
	}
	return c.Allow(peer, state)
}
