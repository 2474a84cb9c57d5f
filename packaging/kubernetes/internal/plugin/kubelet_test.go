package plugin_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// kubelet is the kubelet's side of the API: the server of registrations, and
// the client of the plugins that register.
type kubelet struct {
	api.UnimplementedRegistrationServer
	t   *testing.T
	dir string

	registered chan *endpoint // each registration

	mu      sync.Mutex
	refuse  error // what a registration is answered with
	server  *grpc.Server
	serving sync.WaitGroup
}

// endpoint is a plugin that has registered.
type endpoint struct {
	*api.RegisterRequest
	client api.DevicePluginClient
	lists  chan map[string]int // how many devices have which health
	ended  chan error          // the end of the stream
}

func startKubelet(t *testing.T) *kubelet {
	t.Helper()
	k := &kubelet{t: t, dir: shortDir(t), registered: make(chan *endpoint, 100)}
	k.start()
	t.Cleanup(k.stop)
	return k
}

// shortDir returns a directory whose sockets have short names.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// start does what a kubelet does first: it removes what is in the directory.
func (k *kubelet) start() {
	k.t.Helper()
	old, err := filepath.Glob(filepath.Join(k.dir, "*"))
	if err != nil {
		k.t.Fatal(err)
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			k.t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(k.dir, "kubelet.sock"))
	if err != nil {
		k.t.Fatal(err)
	}
	k.server = grpc.NewServer()
	api.RegisterRegistrationServer(k.server, k)
	k.serving.Go(func() { _ = k.server.Serve(l) }) // it ends by stop
}

func (k *kubelet) stop() {
	k.server.Stop()
	k.serving.Wait()
}

// restart is a kubelet that has ended, and another one.
func (k *kubelet) restart() {
	k.t.Helper()
	k.stop()
	k.start()
}

// refuses has registrations fail, or succeed with nil.
func (k *kubelet) refuses(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuse = err
}

// Register is what plugins call.
func (k *kubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse != nil {
		return nil, k.refuse
	}
	if strings.Contains(r.Endpoint, "/") || r.Version != api.Version {
		return nil, errors.New("no endpoint of this version")
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.dir, r.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	e := &endpoint{RegisterRequest: r, client: api.NewDevicePluginClient(conn), lists: make(chan map[string]int, 100), ended: make(chan error, 1)}
	stream, err := e.client.ListAndWatch(k.t.Context(), &api.Empty{})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go func() {
		for {
			list, err := stream.Recv()
			if err != nil {
				e.ended <- err
				return
			}
			count := map[string]int{}
			for _, d := range list.Devices {
				count[d.Health]++
			}
			e.lists <- count
		}
	}()
	k.registered <- e
	return &api.Empty{}, nil
}

// next returns the next registration.
func (k *kubelet) next() *endpoint {
	k.t.Helper()
	return receive(k.t, k.registered, "registration")
}

// sees waits for a list in which all of n devices have a health.
func (e *endpoint) sees(t *testing.T, n int, health string) {
	t.Helper()
	for {
		list := receive(t, e.lists, "list of "+health+" devices")
		if list[health] == n && len(list) == 1 {
			return
		}
		if total := list[api.Healthy] + list[api.Unhealthy]; total != n {
			t.Fatalf("%d devices, want %d: %v", total, n, list)
		}
	}
}

// allocate asks for containers, each of which gets the devices of a list.
func (e *endpoint) allocate(t *testing.T, containers ...[]string) (*api.AllocateResponse, error) {
	t.Helper()
	req := &api.AllocateRequest{}
	for _, ids := range containers {
		req.ContainerRequests = append(req.ContainerRequests, &api.ContainerAllocateRequest{DevicesIds: ids})
	}
	return e.client.Allocate(t.Context(), req)
}

func receive[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
		return v
	case <-t.Context().Done():
		t.Fatalf("no %s", what)
	}
	return v
}
