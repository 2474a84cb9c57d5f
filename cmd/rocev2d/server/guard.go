package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/observe/metrics"
	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/keychannel"
	"github.com/gosoftroce/rocev2/transport/owner"
)

// hostKeys are the keys that a device has with other hosts, whose packets are
// all sealed.
type hostKeys struct {
	*keychannel.Channel
	table *guard.Table
	file  *os.File
}

// openKeys begins to agree with other hosts on keys.
func openKeys(g *config.Guard, addr netip.Addr, slots int, log *slog.Logger) (*hostKeys, error) {
	t, err := g.TLS()
	if err != nil {
		return nil, err
	}
	h := &hostKeys{}
	if h.table, h.file, err = guard.NewSharedTable(); err != nil {
		return nil, err
	}
	h.Channel, err = keychannel.Open(keychannel.Config{Addr: addr, Port: uint16(g.Port), TLS: t, AnyAddress: g.AnyAddress,
		Allow: allowHosts(g.Allow), Explain: secure.Explain, Table: h.table, Slots: slots, Log: log})
	if err != nil {
		h.file.Close()
		return nil, fmt.Errorf("listen for other hosts, to agree on keys: %w", err)
	}
	return h, nil
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
		t, err := d.cfg.Guard.TLS()
		if err != nil {
			errs = append(errs, fmt.Errorf("device %s: the certificate of before stays: %w", d.addr(), err))
			continue
		}
		d.keys.SetTLS(t)
	}
	return errors.Join(errs...)
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
		c := d.keys.Counters()
		c.Each(func(name string, v uint64) { add(name, c.Help(name), v, true) })
	}
	return list
}
