// The way in, as the files stand:
//
//  1. Start (server.go) checks the configuration and opens its devices: a
//     device owns its port, and leases it to other processes (device.go,
//     leases.go; programs.go has the directory of unmodified programs).
//  2. Clients of memory come to an exporter of each device (exports.go,
//     regions.go). Clients of the field's tools come to a target, directly or
//     through the switchboard of its port (runner.go, switchboard.go,
//     target.go, targets.go).
//  3. Whatever the way, records decides whether a client is taken, and keeps
//     what it was and what went wrong (records.go, peers.go, problems.go).
//  4. The operator comes by HTTP: a listener (admin.go, places.go) guards and
//     routes the request (routes.go) to what answers it (api.go,
//     apicapture.go, counters.go, on handlers.go).
//  5. Shutdown takes no client any more, waits for what is under way, and
//     closes in the order listeners, exports, devices.

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
)

// Options are what a server has from its program.
type Options struct {
	Log     *slog.Logger   // nil: nothing is logged
	Level   *slog.LevelVar // that a reload sets; or nil
	Version string

	// Targets are the servers of the field's tools; nil means all that
	// there are.
	Targets []Target
}

// Server is a running daemon.
type Server struct {
	log     *slog.Logger
	options Options
	failed  chan error // has room for both listeners for HTTP: none waits for a reader

	mu  sync.Mutex // guards cfg, which is replaced and never changed
	cfg *config.Config

	devices  []*device
	programs programsHost // the directory of unmodified programs; nil if there are none
	records  *records
	exports  *exports
	targets  targets
	recorder recorder
	handlers handlers
	admin    *admin
	probing  *admin // the health listener

	stopTargets context.CancelFunc
	closeOnce   sync.Once
	closeErr    error
}

// Start opens what the configuration says and serves it, until Shutdown. The
// error says what could not be opened; then nothing is left open.
func Start(ctx context.Context, cfg *config.Config, o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Targets == nil {
		o.Targets = Targets()
	}
	r := newRecords(o.Log)
	s := &Server{log: o.Log, options: o, cfg: cfg, failed: make(chan error, 2), records: r, exports: newExports(r), recorder: recorder{most: cfg.Capture.Bytes}}
	s.targets = targets{cfg: cfg.Targets, records: r, version: o.Version}
	s.handlers = handlers{log: o.Log, version: o.Version, begin: time.Now(), config: s.Config, failed: s.failed,
		records: r, exports: s.exports, targets: &s.targets, recorder: &s.recorder}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.stopTargets = cancel
	if err := s.open(ctx, run); err != nil {
		s.close()
		return nil, err
	}
	s.handlers.ready.Store(true)
	return s, nil
}

func (s *Server) open(ctx, run context.Context) error {
	if err := errors.Join(checkTargets(s.cfg, s.options.Targets)...); err != nil {
		return err
	}
	share, host, err := sharePorts(s.cfg, s.log)
	s.programs = host
	if err != nil {
		return err
	}
	for i, c := range wantedDevices(s.cfg) {
		d, err := ownDevice(c, s.cfg.TLS.Given(), share, s.records)
		if err != nil {
			return fmt.Errorf("%s: %w", s.cfg.Where(fmt.Sprintf("device.%d", i)), err)
		}
		s.devices = append(s.devices, d)
		d.watch(s.records)
		p := d.dev.QueryPort()
		s.log.Info("device open", "device", d.addr(), "interface", p.Interface, "mtu", p.ActiveMTU.Bytes(), "udp_port", p.UDPPort, "packets", c.Guard.Describe())
	}
	s.handlers.devices = s.devices
	if err := s.exports.start(ctx, run, s.cfg, s.devices); err != nil {
		return err
	}
	if err := s.exports.apply(s.cfg); err != nil {
		return err
	}
	if s.programs != nil {
		for _, d := range s.devices {
			if err := s.programs.add(d); err != nil {
				return fmt.Errorf("device %s: %w", d.addr(), err)
			}
		}
		if err := s.programs.Ready(); err != nil {
			return err
		}
		s.log.Info("programs served", "directory", s.cfg.Programs.Dir)
	}
	if s.cfg.Admin.Listen != "" {
		if s.admin, err = listenAdmin(ctx, &s.handlers, s.cfg.Admin.Listen); err != nil {
			return fmt.Errorf("%s: %w", s.cfg.Where("admin.listen"), err)
		}
		s.log.Info("admin listening", "url", "http://"+s.admin.ln.Addr().String()+"/", "token", s.cfg.Admin.Token != "")
	}
	if s.cfg.Admin.Health != "" {
		if s.probing, err = listenHealth(ctx, &s.handlers, s.cfg.Admin.Health); err != nil {
			return fmt.Errorf("%s: %w", s.cfg.Where("admin.health"), err)
		}
		s.log.Info("health listening", "url", "http://"+s.probing.ln.Addr().String()+"/healthz")
	}
	s.targets.start(run, s.devices, s.options.Targets)
	return nil
}

// HealthAddr returns where the health listener is, nil if there is none.
func (s *Server) HealthAddr() net.Addr {
	if s.probing == nil {
		return nil
	}
	return s.probing.ln.Addr()
}

// AdminAddr returns where the admin listener is, nil if there is none.
func (s *Server) AdminAddr() net.Addr {
	if s.admin == nil {
		return nil
	}
	return s.admin.ln.Addr()
}

// Failed tells of what ends the daemon: a listener for HTTP has failed.
func (s *Server) Failed() <-chan error { return s.failed }

// Config returns the configuration that holds now. It must not be changed.
func (s *Server) Config() *config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// Reload has the daemon do what next says, as far as it can without a restart.
// It returns the settings that it cannot, see config.NeedRestart.
func (s *Server) Reload(next *config.Config) (restart []string, err error) {
	old := s.Config()
	restart = old.NeedRestart(next)
	held := *next // what needs a restart stays as it is
	held.Devices, held.Targets, held.Programs, held.Capture = old.Devices, old.Targets, old.Programs, old.Capture
	held.Admin.Listen, held.Admin.Health, held.Admin.PProf, held.Log.Format = old.Admin.Listen, old.Admin.Health, old.Admin.PProf, old.Log.Format
	if held.TLS.Given() != old.TLS.Given() {
		held.TLS = old.TLS
	}
	if held.Admin.Token == "" && s.admin != nil && !s.admin.loopback {
		return restart, errors.New("admin.token: the listener can be reached from other hosts, so it needs a token; nothing was changed")
	}
	s.mu.Lock()
	s.cfg = &held
	s.mu.Unlock()
	if s.options.Level != nil {
		s.options.Level.Set(held.Log.Level)
	}
	return restart, errors.Join(s.renewTLS(), s.exports.apply(&held))
}

// Shutdown ends everything: no client is taken any more, transfers under way
// may finish until ctx ends, then all connections are closed, and the devices.
// The error says what was cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.records.draining.Store(true)
	err := s.drained(ctx)
	return errors.Join(err, s.close())
}

// drainLook is how often the drain looks whether something is under way.
// Connections over which nothing has moved for that time are idle.
const drainLook = 50 * time.Millisecond

// drained waits until no client of a target is there, and nothing moves any
// more, or until ctx ends.
func (s *Server) drained(ctx context.Context) error {
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	var was uint64
	for first := true; ; first = false {
		clients, connected, busy, moved := s.records.visits.ofTargets(), 0, 0, uint64(0)
		for _, d := range s.devices {
			q := d.dev.QPStats()
			moved += q.TxBytes + q.RxBytes
			c, b := d.work()
			connected, busy = connected+c, busy+b
		}
		if clients == 0 && busy == 0 && (connected == 0 || !first && moved == was) {
			return nil
		}
		was = moved
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("cut off: %d clients of targets, %d queue pairs that had not finished", clients, busy)
		}
	}
}

// closeTime bounds the disconnecting of peers.
const closeTime = 3 * time.Second

func (s *Server) close() error {
	s.closeOnce.Do(func() {
		s.records.cutOff.Store(true)
		s.stopTargets()
		var errs []error
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		errs = append(errs, s.exports.stop(ctx))
		for _, a := range []*admin{s.admin, s.probing} {
			if a != nil {
				errs = append(errs, a.close())
			}
		}
		if s.programs != nil {
			errs = append(errs, s.programs.Close())
		}
		for _, d := range s.devices {
			errs = append(errs, d.close()) // ends what is still waited for
		}
		s.targets.wg.Wait()
		errs = append(errs, s.exports.free())
		s.closeErr = errors.Join(errs...)
	})
	return s.closeErr
}
