package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gosoftroce/rocev2/packaging/kubernetes/internal/plugin"
	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/verbs"
)

// startDaemon serves programs in a directory, as rocev2d does, on a loopback
// address of its own. The function ends it.
func startDaemon(t *testing.T, dir string) (stop func()) {
	t.Helper()
	h, err := programs.Listen(programs.Config{Dir: dir, Allow: func(uint32) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))})
	if err := h.OpenDevice(addr, verbs.Config{}); err != nil {
		t.Fatal(errors.Join(err, h.Close()))
	}
	if err := h.Ready(); err != nil {
		t.Fatal(errors.Join(err, h.Close()))
	}
	stop = sync.OnceFunc(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// said is a log that a test waits for.
type said struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func newLog(t *testing.T) (*said, *slog.Logger) {
	s := &said{more: make(chan struct{}, 1)}
	return s, slog.New(slog.NewTextHandler(io.MultiWriter(s, t.Output()), nil))
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
	return s.text.Write(b)
}

func (s *said) waitFor(t *testing.T, text string) {
	t.Helper()
	for {
		s.mu.Lock()
		found := strings.Contains(s.text.String(), text)
		s.mu.Unlock()
		if found {
			return
		}
		receive(t, s.more, "line of the log with "+text)
	}
}

const ports = 3

// settings are those of a test, with looks that come soon.
func settings(t *testing.T, k *kubelet) plugin.Config {
	t.Helper()
	c := plugin.Default()
	c.Ports, c.Interval = ports, 100*time.Millisecond
	c.Kubelet, c.Directory, c.Libraries = k.dir, filepath.Join(shortDir(t), "d"), shortDir(t)
	return c
}

// started is a plugin that runs in this process.
type started struct {
	log  *said
	stop context.CancelFunc
	done chan error
}

func start(t *testing.T, c plugin.Config, run func(context.Context, plugin.Config, *slog.Logger) error) *started {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	text, log := newLog(t)
	p := &started{text, stop, make(chan error, 1)}
	go func() { p.done <- run(ctx, c, log) }()
	t.Cleanup(func() { p.end(t) })
	return p
}

// end ends the plugin, and may be called again.
func (p *started) end(t *testing.T) {
	t.Helper()
	p.stop()
	err := <-p.done
	if err != nil {
		t.Errorf("the plugin: %v", err)
	}
	p.done <- nil
}

// serves offers ports with libraries that the test does not use.
func serves(ctx context.Context, c plugin.Config, log *slog.Logger) error {
	return plugin.Serve(ctx, &c, "/libraries/1234", log)
}

// A plugin registers, tells of its ports, and gives a container what "rocev2
// run" would give a program. It leaves nothing.
func TestPlugin(t *testing.T) {
	t.Parallel()
	k := startKubelet(t)
	c := settings(t, k)
	startDaemon(t, c.Directory)
	p := start(t, c, serves)
	e := k.next()
	if e.ResourceName != "rocev2/port" || e.Endpoint != "rocev2-port.sock" || e.Options.GetPreStartRequired() || e.Options.GetGetPreferredAllocationAvailable() {
		t.Errorf("the plugin has registered %v", e.RegisterRequest)
	}
	e.sees(t, ports, api.Healthy)
	if o, err := e.client.GetDevicePluginOptions(t.Context(), &api.Empty{}); err != nil || !proto.Equal(o, &api.DevicePluginOptions{}) {
		t.Errorf("options %v, %v", o, err)
	}
	one := &api.ContainerAllocateResponse{
		Envs: map[string]string{"LD_PRELOAD": "/usr/lib/rocev2/librocev2-preload.so", "ROCEV2_PROGRAMS": "/run/rocev2"},
		Mounts: []*api.Mount{
			{ContainerPath: "/run/rocev2", HostPath: c.Directory, ReadOnly: true},
			{ContainerPath: "/usr/lib/rocev2", HostPath: "/libraries/1234", ReadOnly: true},
		},
	}
	got, err := e.allocate(t, []string{"port0"}, []string{"port1", "port2"})
	if want := (&api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{one, one}}); err != nil || !proto.Equal(got, want) {
		t.Errorf("allocated %v, %v", got, err)
	}
	for _, ids := range [][]string{{"port3"}, {"port0", ""}, {}} {
		if _, err := e.allocate(t, ids); status.Code(err) != codes.InvalidArgument {
			t.Errorf("allocate %q: %v", ids, err)
		}
	}
	p.end(t)
	if err := receive(t, e.ended, "end of the stream"); status.Code(err) != codes.Unavailable && !errors.Is(err, io.EOF) {
		t.Errorf("the stream has ended with %v", err)
	}
	if _, err := os.Lstat(filepath.Join(k.dir, e.Endpoint)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the plugin leaves its socket: %v", err)
	}
}

// The ports are healthy while the daemon serves.
func TestDaemonComesAndGoes(t *testing.T) {
	t.Parallel()
	k := startKubelet(t)
	c := settings(t, k)
	var busy atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if busy.Load() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
		}
	}))
	defer web.Close()
	c.Ready = web.URL + "/readyz"
	p := start(t, c, serves)
	e := k.next()
	e.sees(t, ports, api.Unhealthy)
	p.log.waitFor(t, "the daemon serves no programs")
	for range 2 {
		stop := startDaemon(t, c.Directory)
		e.sees(t, ports, api.Healthy)
		busy.Store(true)
		e.sees(t, ports, api.Unhealthy)
		p.log.waitFor(t, "/readyz answers 503")
		busy.Store(false)
		e.sees(t, ports, api.Healthy)
		stop()
		e.sees(t, ports, api.Unhealthy)
	}
}

// A kubelet that begins anew has forgotten the plugin, and has removed its
// socket.
func TestKubeletRestarts(t *testing.T) {
	t.Parallel()
	k := startKubelet(t)
	c := settings(t, k)
	startDaemon(t, c.Directory)
	start(t, c, serves)
	k.next().sees(t, ports, api.Healthy)
	for range 3 {
		k.restart()
		e := k.next()
		e.sees(t, ports, api.Healthy)
		if _, err := e.allocate(t, []string{"port0"}); err != nil {
			t.Error(err)
		}
	}
	// Also where it is the plugin's socket alone that is gone.
	if err := os.Remove(filepath.Join(k.dir, "rocev2-port.sock")); err != nil {
		t.Fatal(err)
	}
	k.next().sees(t, ports, api.Healthy)
}

// A plugin waits for a kubelet that is not there yet, or refuses it, and says
// so.
func TestKubeletRefuses(t *testing.T) {
	t.Parallel()
	k := startKubelet(t)
	c := settings(t, k)
	k.stop()
	p := start(t, c, serves)
	p.log.waitFor(t, "no kubelet")
	k.refuses(fmt.Errorf("the ResourceName %q is invalid", c.Resource))
	k.start()
	p.log.waitFor(t, "is invalid")
	k.refuses(nil)
	k.next().sees(t, ports, api.Unhealthy)
}

// Of two plugins with a resource one waits, and takes the place of the other
// when that ends.
func TestTwoPlugins(t *testing.T) {
	t.Parallel()
	k := startKubelet(t)
	c := settings(t, k)
	startDaemon(t, c.Directory)
	if !programs.Carried() {
		t.Skip("this test carries no libraries for pods (make preload builds them)")
	}
	first := start(t, c, plugin.Run)
	k.next().sees(t, ports, api.Healthy)
	second := start(t, c, plugin.Run)
	second.log.waitFor(t, "another plugin offers the resource")
	if len(k.registered) > 0 {
		t.Error("the second plugin has registered")
	}
	first.end(t)
	k.next().sees(t, ports, api.Healthy)
}
