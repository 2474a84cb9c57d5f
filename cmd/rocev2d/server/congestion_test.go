package server_test

import (
	"testing"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
)

// The queue pairs of a device have the congestion control that it was given, or
// that of all devices, on the side of the daemon.
func TestCongestionOfDevices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		all, one, shown string
		window          float64
	}{
		{"", "", "window", 0}, // it grows
		{"static,bytes=48K", "", "static,bytes=48K", 48 << 10},
		{"dcqcn,line=25G", "static,bytes=32K", "static,bytes=32K", 32 << 10},
	} {
		d := start(t, func(s *config.Config) {
			s.Devices[0].Regions = config.DefaultRegionsPort
			s.Regions = []config.Region{{Name: "scratch", Size: 4096, Access: config.ReadWrite}}
			s.Congestion, s.Devices[0].Congestion = c.all, c.one
		})
		regionNamed(t, d.dial(), "scratch")
		if list, _ := d.items("devices"); list[0]["congestion"] != c.shown {
			t.Errorf("%+v: the device has %v", c, list[0]["congestion"])
		}
		connected := 0
		list, _ := d.items("qps?state=RTS")
		for _, q := range list {
			if q["peer"] != nil {
				connected++
				if c.window != 0 && q["window"] != c.window {
					t.Errorf("%+v: a queue pair has a window of %v", c, q["window"])
				}
			}
		}
		if connected == 0 {
			t.Errorf("%+v: no queue pair is connected: %v", c, list)
		}
	}
}
