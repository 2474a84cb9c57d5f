package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/internal/loglimit"
	"github.com/gosoftroce/rocev2/memreg/mapping"
	"github.com/gosoftroce/rocev2/observe/metrics"
	"github.com/gosoftroce/rocev2/verbs"
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
	begin   time.Time
	ready   atomic.Bool
	drain   atomic.Bool
	cut     atomic.Bool // clients that are still there are cut off
	failed  chan error  // has room for both listeners for HTTP: none waits for a reader

	mu  sync.Mutex // guards cfg, which is replaced and never changed
	cfg *config.Config

	exporting sync.Mutex                  // one change of the regions at a time
	memory    map[string]*mapping.Mapping // of anonymous regions, by name; guarded by exporting
	exporters []*exporter

	devices  []*device
	programs programsHost // the directory of unmodified programs; nil if there are none
	targets  targets
	visits   *visits
	problems problems
	logged   loglimit.Limit // of problems
	recorder recorder
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
	s := &Server{log: o.Log, options: o, begin: time.Now(), cfg: cfg, visits: newVisits(), memory: map[string]*mapping.Mapping{}, failed: make(chan error, 2)}
	s.recorder.most = cfg.Capture.Bytes
	s.visits.onEnd = func(v Visit, err error) {
		host := v.Peer
		if h, _, err := net.SplitHostPort(v.Peer); err == nil {
			host = h
		}
		s.problem(Problem{Device: v.Device, Source: v.Target, What: err.Error(), Peer: host})
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.stopTargets = cancel
	if err := s.open(ctx, run); err != nil {
		s.close()
		return nil, err
	}
	s.ready.Store(true)
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
		d, err := ownDevice(c, share)
		if err != nil {
			return fmt.Errorf("%s: %w", s.cfg.Where(fmt.Sprintf("device.%d", i)), err)
		}
		s.devices = append(s.devices, d)
		d.watch(s)
		p := d.dev.QueryPort()
		s.log.Info("device open", "device", d.addr(), "interface", p.Interface, "mtu", p.ActiveMTU.Bytes(), "udp_port", p.UDPPort)
	}
	if err := s.startRegions(ctx, run); err != nil {
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
		if s.admin, err = listenAdmin(ctx, s, s.cfg.Admin.Listen); err != nil {
			return fmt.Errorf("%s: %w", s.cfg.Where("admin.listen"), err)
		}
		s.log.Info("admin listening", "url", "http://"+s.admin.ln.Addr().String()+"/", "token", s.cfg.Admin.Token != "")
	}
	if s.cfg.Admin.Health != "" {
		if s.probing, err = listenHealth(ctx, s, s.cfg.Admin.Health); err != nil {
			return fmt.Errorf("%s: %w", s.cfg.Where("admin.health"), err)
		}
		s.log.Info("health listening", "url", "http://"+s.probing.ln.Addr().String()+"/healthz")
	}
	s.startTargets(run, s.options.Targets)
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

// problem records an error, and logs it.
func (s *Server) problem(p Problem) {
	explain(&p)
	now := time.Now()
	s.problems.add(now, p)
	hidden, ok := s.logged.Allow(now)
	if !ok {
		return
	}
	if hidden > 0 {
		s.log.Warn("too many problems for the log; the list of problems counts them all", "left out", hidden)
	}
	s.log.Warn(clip(p.What), "source", p.Source, "device", p.Device, "peer", p.Peer, "meaning", p.Meaning, "remedy", p.Remedy)
}

func (s *Server) verbsDevices() (list []*verbs.Device) {
	for _, d := range s.devices {
		list = append(list, d.dev)
	}
	return list
}

// gauges are what the daemon itself counts, for the metrics.
func (s *Server) gauges() (list []metrics.Gauge) {
	s.visits.each(func(kind string, c visitCount) {
		for _, g := range []struct {
			name, help string
			value      uint64
		}{
			{"target_clients", "clients that were taken, by target", c.begun},
			{"target_failures", "clients whose run ended with an error, by target", c.failed},
			{"target_refusals", "clients that were not taken, by target", c.refused},
		} {
			list = append(list, metrics.Gauge{Name: g.name, Help: g.help, Label: "target", LabelValue: kind, Value: float64(g.value), Total: true})
		}
	})
	_, total := s.problems.latest()
	return append(append(list, leaseGauges(s.devices)...),
		metrics.Gauge{Name: "clients", Help: "clients that are there now", Value: float64(s.visits.size())},
		metrics.Gauge{Name: "errors", Help: "errors that were recorded", Value: float64(total), Total: true},
		metrics.Gauge{Name: "start_time_seconds", Help: "when the daemon began, in Unix time", Value: float64(s.begin.UnixMilli()) / 1000},
	)
}

// Reload has the daemon do what next says, as far as it can without a restart.
// It returns the settings that it cannot, see config.NeedRestart.
func (s *Server) Reload(next *config.Config) (restart []string, err error) {
	old := s.Config()
	restart = old.NeedRestart(next)
	held := *next // what needs a restart stays as it is
	held.Devices, held.Targets, held.Programs, held.Capture = old.Devices, old.Targets, old.Programs, old.Capture
	held.Admin.Listen, held.Admin.Health, held.Admin.PProf, held.Log.Format = old.Admin.Listen, old.Admin.Health, old.Admin.PProf, old.Log.Format
	if held.Admin.Token == "" && s.admin != nil && !s.admin.loopback {
		return restart, errors.New("admin.token: the listener can be reached from other hosts, so it needs a token; nothing was changed")
	}
	s.mu.Lock()
	s.cfg = &held
	s.mu.Unlock()
	if s.options.Level != nil {
		s.options.Level.Set(held.Log.Level)
	}
	return restart, s.export(&held)
}

// admit records a client, unless there are too many or the daemon ends.
func (s *Server) admit(kind, device string, peer net.Addr, most int) (*Visit, error) {
	if s.drain.Load() {
		return nil, errDraining
	}
	return s.visits.begin(time.Now(), kind, device, peer, most)
}

// Shutdown ends everything: no client is taken any more, transfers under way
// may finish until ctx ends, then all connections are closed, and the devices.
// The error says what was cut off.
func (s *Server) Shutdown(ctx context.Context) error {
	s.drain.Store(true)
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
		clients, connected, busy, moved := s.visits.ofTargets(), 0, 0, uint64(0)
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
		s.cut.Store(true)
		s.stopTargets()
		var errs []error
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		for _, e := range s.exporters {
			errs = append(errs, e.stop(ctx))
		}
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
		for _, e := range s.exporters {
			e.wg.Wait()
		}
		s.targets.wg.Wait()
		s.exporting.Lock() // a reload may be under way
		defer s.exporting.Unlock()
		for _, m := range s.memory {
			errs = append(errs, m.Close()) // it can no longer be reached
		}
		s.memory = nil
		s.closeErr = errors.Join(errs...)
	})
	return s.closeErr
}
