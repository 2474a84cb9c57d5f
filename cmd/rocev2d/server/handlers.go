package server

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/verbs"
)

// handlers answers what is asked over HTTP.
type handlers struct {
	log     *slog.Logger
	version string
	begin   time.Time
	config  func() *config.Config // that holds now
	failed  chan<- error          // is told of a listener that fails
	ready   atomic.Bool

	devices  []*device
	records  *records
	exports  *exports
	targets  *targets
	recorder *recorder
	rates    leaseRates
}

// health answers as long as the process does.
func (h *handlers) health(w http.ResponseWriter, _ *http.Request) {
	io.WriteString(w, "ok\n")
}

// readiness answers 200 when clients are served, and else why not.
func (h *handlers) readiness(w http.ResponseWriter, _ *http.Request) {
	if why := h.unready(); why != "" {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "ready\n")
}

// unready says why clients are not served; "" if they are: the devices are
// open, their ports active, and the daemon does not drain.
func (h *handlers) unready() string {
	switch {
	case h.records.draining.Load():
		return "draining"
	case !h.ready.Load():
		return "starting"
	}
	for _, d := range h.devices {
		if p := d.dev.QueryPort(); p.State != verbs.PortActive {
			return "device " + d.addr() + ": " + p.DownReason
		}
	}
	return ""
}

// devicesNamed returns the device of an address, or as the configuration calls
// it; without a name all.
func (h *handlers) devicesNamed(name string) (list []*device, err error) {
	for _, d := range h.devices {
		if name == "" || name == d.addr() || name == d.cfg.Address {
			list = append(list, d)
		}
	}
	if list == nil {
		return nil, fmt.Errorf("there is no device %q", clip(name))
	}
	return list, nil
}
