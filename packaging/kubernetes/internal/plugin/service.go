package plugin

import (
	"context"
	"path"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gosoftroce/rocev2/programs"
)

// service is what the kubelet calls.
type service struct {
	api.UnimplementedDevicePluginServer
	grant *api.ContainerAllocateResponse
	ids   map[string]bool
	ports int
	done  <-chan struct{} // closed when the plugin ends

	mu      sync.Mutex
	healthy bool
	changed chan struct{} // closed when healthy changes
}

func newService(c *Config, libraries string, done <-chan struct{}) *service {
	s := &service{grant: grantOf(c.Directory, libraries), ids: map[string]bool{}, ports: c.Ports, done: done, changed: make(chan struct{})}
	for i := range c.Ports {
		s.ids[portID(i)] = true
	}
	return s
}

// grantOf returns what a container gets. Both directories are read-only: a
// program connects to the daemon's sockets, and no pod can put something else
// in the place of what other pods load and believe.
func grantOf(directory, libraries string) *api.ContainerAllocateResponse {
	return &api.ContainerAllocateResponse{
		Envs: map[string]string{
			"LD_PRELOAD":      path.Join(PodLibraries, programs.LibraryName),
			"ROCEV2_PROGRAMS": PodDirectory,
		},
		Mounts: []*api.Mount{
			{ContainerPath: PodDirectory, HostPath: directory, ReadOnly: true},
			{ContainerPath: PodLibraries, HostPath: libraries, ReadOnly: true},
		},
	}
}

func portID(i int) string { return "port" + strconv.Itoa(i) }

// setHealthy has the kubelet learn a change, and reports whether it is one.
func (s *service) setHealthy(healthy bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.healthy == healthy {
		return false
	}
	s.healthy = healthy
	close(s.changed)
	s.changed = make(chan struct{})
	return true
}

// list returns the ports as they are, and what is closed when they change.
func (s *service) list() (*api.ListAndWatchResponse, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	health := api.Unhealthy
	if s.healthy {
		health = api.Healthy
	}
	r := &api.ListAndWatchResponse{}
	for i := range s.ports {
		r.Devices = append(r.Devices, &api.Device{ID: portID(i), Health: health})
	}
	return r, s.changed
}

// GetDevicePluginOptions says that the plugin needs no other calls.
func (s *service) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends the ports, again whenever their health changes.
func (s *service) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		list, changed := s.list()
		if err := stream.Send(list); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-s.done:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate returns what the containers get.
func (s *service) Allocate(_ context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	r := &api.AllocateResponse{}
	for _, c := range req.GetContainerRequests() {
		if len(c.GetDevicesIds()) == 0 {
			return nil, status.Error(codes.InvalidArgument, "a container without a port")
		}
		for _, id := range c.GetDevicesIds() {
			if !s.ids[id] {
				return nil, status.Errorf(codes.InvalidArgument, "there is no port %q; there are %s to %s", id, portID(0), portID(s.ports-1))
			}
		}
		r.ContainerResponses = append(r.ContainerResponses, s.grant)
	}
	return r, nil
}
