package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/internal/loglimit"
	"github.com/gosoftroce/rocev2/memreg/mapping"
	"github.com/gosoftroce/rocev2/rdma"
)

// exports is the memory that the daemon exports, on all devices.
type exports struct {
	records   *records
	exporters []*exporter

	tls      atomic.Pointer[config.TLS] // for connections that are made from now on
	refusals loglimit.Limit             // of clients in clear

	mu     sync.Mutex                  // one change of the regions at a time
	memory map[string]*mapping.Mapping // of anonymous regions, by name; nil when it was freed
}

func newExports(r *records) *exports {
	return &exports{records: r, memory: map[string]*mapping.Mapping{}}
}

// start serves regions on every device that has a port for them, until run
// ends.
func (x *exports) start(ctx, run context.Context, c *config.Config, devices []*device) error {
	x.secureBy(&c.TLS)
	for _, d := range devices {
		if d.cfg.Regions == 0 {
			continue
		}
		e, err := x.newExporter(ctx, d)
		if err != nil {
			return fmt.Errorf("regions of device %s: %w", d.addr(), err)
		}
		run, cancel := context.WithCancel(run)
		e.cancel = cancel
		x.exporters = append(x.exporters, e)
		e.wg.Go(func() { e.serve(run) })
	}
	return nil
}

// newExporter listens on a device.
func (x *exports) newExporter(ctx context.Context, d *device) (*exporter, error) {
	e := &exporter{records: x.records, memory: x.remember, d: d, list: map[string]*region{}, refusals: &x.refusals}
	lc := rdma.ListenConfig{Device: d.dev, MessageSize: regionMessage, Depth: 16, MaxConns: maxRegionClients, Admit: e.admit, OnRegion: e.asked}
	if d.seals {
		lc.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return x.tls.Load().Config, nil }}
		lc.AdmitClear, lc.OnNotSecured = e.admitClear, e.notSecured
	}
	var err error
	e.ln, err = lc.Listen(ctx, netip.AddrPortFrom(d.dev.Addr(), uint16(d.cfg.Regions)).String())
	return e, err
}

// apply has all devices export the regions of a configuration, and no others.
// It returns what failed, and continues with the rest.
func (x *exports) apply(c *config.Config) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.memory == nil { // a reload beside the end
		return errDraining
	}
	x.secureBy(&c.TLS)
	var errs []error
	for _, e := range x.exporters {
		errs = append(errs, e.prune(c))
	}
	for _, e := range x.exporters { // when all have left the memory that changes
		errs = append(errs, e.fill(c))
	}
	// Memory that no region is of any more goes.
	for name, m := range x.memory {
		if !slices.ContainsFunc(x.exporters, func(e *exporter) bool { return e.uses(name) }) {
			errs = append(errs, m.Close())
			delete(x.memory, name)
		}
	}
	return errors.Join(errs...)
}

// remember returns the memory of a region: the same bytes on all devices, and
// also under a new key. It is not of the heap, whose collector would let
// garbage grow with it.
func (x *exports) remember(c *config.Region) ([]byte, error) {
	m := x.memory[c.Name]
	if m != nil && len(m.Data()) == int(c.Size) {
		return m.Data(), nil
	}
	if m != nil {
		if slices.ContainsFunc(x.exporters, func(e *exporter) bool { return e.uses(c.Name) }) {
			return nil, errors.New("a device has still the region of the old size")
		}
		delete(x.memory, c.Name)
		if err := m.Close(); err != nil {
			return nil, err
		}
	}
	m, err := mapping.Anonymous(int(c.Size), mapping.Options{Reserve: true})
	if err != nil {
		return nil, err
	}
	x.memory[c.Name] = m
	return m.Data(), nil
}

// stop takes no more clients, and disconnects those that are there.
func (x *exports) stop(ctx context.Context) error {
	var errs []error
	for _, e := range x.exporters {
		errs = append(errs, e.stop(ctx))
	}
	return errors.Join(errs...)
}

// free waits until no client is served, and gives the memory back. The devices
// are closed.
func (x *exports) free() error {
	for _, e := range x.exporters {
		e.wg.Wait()
	}
	x.mu.Lock() // a reload may be under way
	defer x.mu.Unlock()
	var errs []error
	for _, m := range x.memory {
		errs = append(errs, m.Close()) // it can no longer be reached
	}
	x.memory = nil
	return errors.Join(errs...)
}

// list returns what is exported, in the order of names and devices.
func (x *exports) list() []regionInfo {
	list := []regionInfo{}
	for _, e := range x.exporters {
		e.mu.RLock()
		for _, r := range e.list {
			list = append(list, r.info())
		}
		e.mu.RUnlock()
	}
	slices.SortFunc(list, func(a, b regionInfo) int {
		return slices.Compare([]string{a.Name, a.Device}, []string{b.Name, b.Device})
	})
	return list
}
