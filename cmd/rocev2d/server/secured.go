package server

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/observe/metrics"
	"github.com/gosoftroce/rocev2/rdma/secure"
)

// secureBy has connections that are made from now on secured by what a
// configuration says.
func (x *exports) secureBy(t *config.TLS) {
	if x.tls.Swap(t) == t {
		return
	}
	if leaf := t.Leaf(); leaf != nil {
		x.records.log.Info("connections of regions are secured", "certificate", t.Cert, "subject", leaf.Subject.String(), "until", leaf.NotAfter.UTC(), "serial", leaf.SerialNumber.Text(16))
	} else if t.PSK != "" {
		x.records.log.Info("connections of regions are secured", "psk_file", t.PSK)
	}
}

var errOnlySecured = errors.New("the regions that this address may have are for secured connections: dial with TLS (rocev2 region --tls-cert, --tls-key and --tls-ca, or --psk)")

// admitClear decides whether a client without TLS may come, beside admit: it
// may have a region that is not for secured connections alone.
func (e *exporter) admitClear(client netip.Addr) error {
	if e.allowsClear(client) {
		return nil
	}
	e.records.visits.refuse(serviceRegions)
	hidden, ok := e.refusals.Allow(time.Now())
	if ok {
		e.records.log.Warn("a client in clear was refused: what it may have is for secured connections", "device", e.d.addr(), "peer", client, "left out", hidden)
	}
	return errOnlySecured
}

func (e *exporter) allowsClear(client netip.Addr) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, r := range e.list {
		if !r.cfg.Secured() && r.cfg.Allowed(client) {
			return true
		}
	}
	return len(e.list) == 0
}

// notSecured records a client whose handshake has failed.
func (e *exporter) notSecured(client net.Addr, err error) {
	e.records.visits.notSecured()
	e.records.problem(Problem{
		Device: e.d.addr(), Source: serviceRegions, Peer: hostOf(client), What: err.Error(),
		Meaning: "the connection could not be secured, and the client was refused",
		Remedy:  "compare the certificates and authorities, or the secrets, of both sides: docs/secure.md",
	})
}

// Secured says that the connection of the client is secured.
func (n *Visit) Secured(state *tls.ConnectionState) {
	n.visits.mu.Lock()
	defer n.visits.mu.Unlock()
	if n.TLS == nil {
		n.visits.secured.now++
		n.visits.secured.total++
	}
	n.TLS = &SecuredBy{Cipher: tls.CipherSuiteName(state.CipherSuite)}
	if names := secure.Names(state); len(names) > 0 {
		n.TLS.Name = clip(string(names[0]))
	}
}

// SecuredBy says how a connection is secured.
type SecuredBy struct {
	Cipher string `json:"cipher"`         // of the handshake; that of the packets is as strong
	Name   string `json:"name,omitempty"` // the first name of the client's certificate
}

// securedCount counts connections that are secured, and handshakes that have
// failed.
type securedCount struct {
	now           int
	total, failed uint64
}

func (v *visits) notSecured() {
	v.mu.Lock()
	v.secured.failed++
	v.count(serviceRegions).refused++
	v.mu.Unlock()
}

// securedGauges are what is secured, for the metrics. There are none where
// nothing can be.
func (h *handlers) securedGauges() []metrics.Gauge {
	t := h.exports.tls.Load()
	if t == nil || t.Config == nil {
		return nil
	}
	h.records.visits.mu.Lock()
	c := h.records.visits.secured
	h.records.visits.mu.Unlock()
	list := []metrics.Gauge{
		{Name: "secured_clients", Help: "clients of regions that are there now, with a connection that is secured", Value: float64(c.now)},
		{Name: "secured", Help: "connections of clients of regions that were secured", Value: float64(c.total), Total: true},
		{Name: "secured_failures", Help: "connections of clients of regions that could not be secured, and were refused", Value: float64(c.failed), Total: true},
	}
	if leaf := t.Leaf(); leaf != nil {
		list = append(list, metrics.Gauge{Name: "certificate_expiry_seconds", Help: "until when the certificate of the daemon holds, in Unix time", Value: float64(leaf.NotAfter.Unix())})
	}
	return list
}
