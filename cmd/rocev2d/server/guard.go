package server

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/observe/metrics"
	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/keychannel"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/verbs"
)

// hostKeys are the keys that a device has with other hosts, whose packets are
// all sealed.
type hostKeys struct {
	*keychannel.Channel
	table *guard.Table
	file  *os.File
}

// openKeys begins to agree with other hosts on keys. failed is told of
// handshakes that fail.
func openKeys(g *config.Guard, addr netip.Addr, slots int, log *slog.Logger, failed func(keychannel.Failure)) (*hostKeys, error) {
	t, err := hostTLS(g, addr)
	if err != nil {
		return nil, err
	}
	h := &hostKeys{}
	if h.table, h.file, err = guard.NewSharedTable(); err != nil {
		return nil, err
	}
	h.Channel, err = keychannel.Open(keychannel.Config{Addr: addr, Port: uint16(g.Port), TLS: t, AnyAddress: g.AnyAddress,
		Allow: allowHosts(g.Allow), Explain: secure.Explain, Table: h.table, Slots: slots, Log: log, Failed: failed})
	if err != nil {
		h.file.Close()
		return nil, fmt.Errorf("listen for other hosts, to agree on keys: %w", err)
	}
	return h, nil
}

// hostTLS reads the files of a device. Its certificate is one that other hosts
// take.
func hostTLS(g *config.Guard, addr netip.Addr) (*tls.Config, error) {
	t, err := g.TLS()
	if err != nil || g.PSK != "" {
		return t, err
	}
	leaf := t.Certificates[0].Leaf
	if err := leaf.VerifyHostname(addr.WithZone("").String()); err != nil && !g.AnyAddress {
		return nil, fmt.Errorf("device.secure.cert: %s is not for %v, so other hosts refuse it: issue it with that as a subject alternative name (IP:%[2]v), or set any_address on all hosts: %w", g.Cert, addr.WithZone(""), err)
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if all := leaf.ExtKeyUsage; len(all) > 0 && !slices.Contains(all, use) && !slices.Contains(all, x509.ExtKeyUsageAny) {
			return nil, fmt.Errorf("device.secure.cert: the extended key usage of %s does not have both serverAuth and clientAuth, so other hosts refuse it: either of two hosts connects", g.Cert)
		}
	}
	return t, nil
}

// notAgreed records that a handshake of a device with another host has failed.
func (r *records) notAgreed(device netip.Addr) func(keychannel.Failure) {
	return func(f keychannel.Failure) {
		p := Problem{Device: device.String(), Source: "keys", Peer: f.Peer.String(), What: "it has connected: " + f.Err.Error(),
			Meaning: "there are no keys with that host: packets to it are not sent, and those of it are dropped",
			Remedy:  "see what docs/secure.md says of the error, and what the peer itself says",
		}
		if f.Began {
			p.What = "this side has connected: " + f.Err.Error()
		}
		if !f.Since.IsZero() {
			p.Meaning = "no new keys were agreed upon with that host: those of before are used, which it may have lost by a restart"
		}
		r.problem(p)
	}
}

func (h *hostKeys) secured() *owner.Secured {
	return &owner.Secured{Table: h.table, File: h.file, Want: h.Want}
}

func (h *hostKeys) close() error { return errors.Join(h.Close(), h.file.Close()) }

// allowHosts decides by a list of names which hosts may come; those of PSK have
// none.
func allowHosts(list []secure.Name) func(netip.Addr, *tls.ConnectionState) (string, error) {
	return func(peer netip.Addr, state *tls.ConnectionState) (string, error) {
		names := secure.Names(state)
		for _, n := range names {
			if slices.Contains(list, n) {
				return string(n), nil
			}
		}
		switch {
		case len(list) > 0:
			return "", fmt.Errorf("no name of the certificate of %v is on the list of device.secure (allow): it has %q", peer, names)
		case len(names) > 0:
			return string(names[0]), nil
		}
		return "", nil
	}
}

// renewTLS has devices read their certificates again.
func (s *Server) renewTLS() error {
	var errs []error
	for _, d := range s.devices {
		if d.keys == nil {
			continue
		}
		t, err := hostTLS(&d.cfg.Guard, d.dev.Addr())
		if err == nil {
			err = d.keys.SetTLS(t)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("device %s: the certificate of before stays: %w", d.addr(), err))
		}
	}
	return errors.Join(errs...)
}

// securedInfo is how a device is secured, in the JSON interface.
type securedInfo struct {
	How   string     `json:"how"`
	Hosts []hostInfo `json:"hosts"` // the first ones
	Total int        `json:"total"` // of hosts
}

// hostInfo is a host with which there are keys, or should be.
type hostInfo struct {
	Address string     `json:"address"`
	Name    string     `json:"name,omitempty"`  // of its certificate
	Since   *time.Time `json:"since,omitempty"` // of the keys; none: there are none
	Error   string     `json:"error,omitempty"` // of the last handshake
	ErrorAt *time.Time `json:"error_at,omitempty"`
}

// maxHosts bounds the hosts of a device that are listed: first those without
// keys.
const maxHosts = 100

// secured is nil where packets go in clear.
func (d *device) secured() *securedInfo {
	if d.keys == nil {
		return nil
	}
	i := &securedInfo{How: d.cfg.Guard.Describe(), Hosts: []hostInfo{}}
	all := d.keys.States()
	slices.SortStableFunc(all, func(a, b keychannel.State) int { return cmp.Compare(min(a.Since.Unix(), 0), min(b.Since.Unix(), 0)) })
	i.Total = len(all)
	for _, s := range all[:min(len(all), maxHosts)] {
		h := hostInfo{Address: s.Addr.String(), Name: clip(s.Name)}
		if !s.Since.IsZero() {
			h.Since = &s.Since
		}
		if s.Err != nil {
			h.Error, h.ErrorAt = clip(s.Err.Error()), &s.At
		}
		i.Hosts = append(i.Hosts, h)
	}
	return i
}

// guardCounters returns what the daemon has sealed, opened and dropped of a
// device: of its own queue pairs, and of the management datagrams of all
// programs.
func (d *device) guardCounters() (sum verbs.GuardCounters, secured bool) {
	sum, secured = d.dev.GuardCounters()
	if d.port != nil {
		if c, ok := d.port.GuardCounters(); ok {
			sum.Add(&c)
		}
	}
	return sum, secured
}

// keyGauges are the keys with other hosts, for the metrics.
func keyGauges(devices []*device) (list []metrics.Gauge) {
	for _, d := range devices {
		if d.keys == nil {
			continue
		}
		with, without := 0, 0
		for _, s := range d.keys.States() {
			if s.Since.IsZero() {
				without++
			} else {
				with++
			}
		}
		add := func(name, help string, v uint64, total bool) {
			list = append(list, metrics.Gauge{Name: name, Help: help, Label: "device", LabelValue: d.addr(), Value: float64(v), Total: total})
		}
		add("key_hosts", "hosts with which a secured device has keys", uint64(with), false)
		add("key_hosts_without", "hosts with which a secured device has no keys, as handshakes fail: packets to them are not sent", uint64(without), false)
		if g, ok := d.port.GuardCounters(); ok {
			g.Each(func(name string, v uint64) {
				list = append(list, metrics.Gauge{Name: "manager_sealing", Help: "what sealing the management datagrams of all programs of a port has counted, by the name of the counter in verbs.GuardCounters", Label: "device", LabelValue: d.addr(),
					More: []metrics.Label{{Name: "counter", Value: name}}, Value: float64(v), Total: true})
			})
		}
		c := d.keys.Counters()
		c.Each(func(name string, v uint64) { add(name, c.Help(name), v, true) })
	}
	return list
}
