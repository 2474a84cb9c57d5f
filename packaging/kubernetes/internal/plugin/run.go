package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Run offers the ports until ctx ends. It registers again whenever the kubelet
// has begun anew. An error is one that time does not mend.
func Run(ctx context.Context, c Config, log *slog.Logger) error {
	if err := c.Check(); err != nil {
		return err
	}
	if err := directoryAt(c.Directory, "mount the directory of the daemon there, by the path that it has on the node (--directory)"); err != nil {
		return err
	}
	if err := directoryAt(c.Kubelet, "mount the directory of the kubelet's socket there (--kubelet)"); err != nil {
		return err
	}
	libraries, err := InstallLibraries(ctx, c.Libraries)
	if err != nil {
		return err
	}
	alone, err := lock(ctx, filepath.Join(c.Libraries, "."+fileName(c.Resource)+".lock"), log)
	if err != nil || alone == nil {
		return err
	}
	defer alone.Close()
	log.Info("ready", "resource", c.Resource, "ports", c.Ports, "directory", c.Directory, "libraries", libraries)
	return serve(ctx, &c, libraries, log)
}

// fileName returns a resource as the name of a file.
func fileName(resource string) string { return strings.ReplaceAll(resource, "/", "-") }

// lock waits until no other plugin offers the resource: two would take each
// other's places all the time. It returns nil when ctx ends.
func lock(ctx context.Context, file string, log *slog.Logger) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(looking)
	defer tick.Stop()
	for said := false; ; said = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(&fs.PathError{Op: "flock", Path: file, Err: err}, f.Close())
		}
		if !said {
			log.Warn("another plugin offers the resource on this node; this one waits for its end", "lock", file)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, f.Close()
		}
	}
}

// serve offers the ports, with the libraries of a folder.
func serve(ctx context.Context, c *Config, libraries string, log *slog.Logger) error {
	s := newService(c, libraries, ctx.Done())
	var wg sync.WaitGroup
	wg.Go(func() { s.follow(ctx, &daemon{c.Directory, c.Ready}, c.Interval, log) })
	defer wg.Wait()
	p := &presence{config: c, service: s, log: log}
	return p.keep(ctx)
}

// follow watches the daemon.
func (s *service) follow(ctx context.Context, d *daemon, every time.Duration, log *slog.Logger) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	said := ""
	for {
		err := d.check(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case s.setHealthy(err == nil) && err == nil:
			log.Info("the daemon serves programs: the ports are healthy")
			said = ""
		case err != nil && err.Error() != said:
			log.Warn("the daemon serves no programs: the ports are not healthy", "error", err)
			said = err.Error()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// presence is the plugin's socket beside that of a kubelet, which knows it.
type presence struct {
	config  *Config
	service *service
	log     *slog.Logger

	server        *grpc.Server
	own, kubelets fs.FileInfo // the two sockets
}

// looking is how often the sockets are looked at: a kubelet that begins anew
// removes all others' sockets and makes its own.
const looking = time.Second

// keep serves the kubelet, and each one that comes in its place.
func (p *presence) keep(ctx context.Context) error {
	tick := time.NewTicker(min(looking, p.config.Interval))
	defer tick.Stop()
	defer p.leave()
	said := ""
	for {
		if !p.known() {
			p.leave()
			err := p.enter(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				p.log.Info("the kubelet has registered the resource", "resource", p.config.Resource)
				said = ""
			} else if p.leave(); err.Error() != said {
				p.log.Warn("the kubelet has not registered the resource; the plugin tries again", "error", err)
				said = err.Error()
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *presence) socket() string { return p.config.socket() }

func (p *presence) kubelet() string {
	return filepath.Join(p.config.Kubelet, filepath.Base(api.KubeletSocket))
}

// known reports whether the kubelet is the one that knows the plugin, and the
// plugin's socket is still there.
func (p *presence) known() bool {
	return p.server != nil && same(p.own, p.socket()) && same(p.kubelets, p.kubelet())
}

// same reports whether a socket is the one it was. A new one may have the
// number of one that was removed, but not its time.
func same(old fs.FileInfo, path string) bool {
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(old, now) && old.ModTime().Equal(now.ModTime())
}

// enter serves on a socket, and tells the kubelet.
func (p *presence) enter(ctx context.Context) (err error) {
	if p.kubelets, err = os.Lstat(p.kubelet()); err != nil {
		return fmt.Errorf("no kubelet: %w", err)
	}
	// One that was killed has left its socket.
	if err := os.Remove(p.socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.socket(), Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false) // by then it may be another plugin's
	if p.own, err = os.Lstat(p.socket()); err != nil {
		return errors.Join(err, l.Close())
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p.service)
	p.server = server
	go func() {
		if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			p.log.Warn("the socket of the plugin has failed", "error", err)
		}
	}()
	return p.register(ctx)
}

// registerTime bounds the kubelet's answer. It calls the plugin before it
// answers.
const registerTime = 20 * time.Second

func (p *presence) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerTime)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+p.kubelet(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version:      api.Version,
		Endpoint:     filepath.Base(p.socket()),
		ResourceName: p.config.Resource,
		Options:      &api.DevicePluginOptions{},
	})
	return err
}

// leave ends the calls of the kubelet and removes the socket, if it is still
// the plugin's.
func (p *presence) leave() {
	if p.server == nil {
		return
	}
	if same(p.own, p.socket()) {
		if err := os.Remove(p.socket()); err != nil {
			p.log.Warn("the socket of the plugin stays", "error", err)
		}
	}
	p.server.Stop()
	p.server = nil
}
