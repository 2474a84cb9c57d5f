package server

import (
	"context"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
)

// Both listeners for HTTP fail. The daemon says so, and can be ended even if
// Failed was not called.
func TestBothListenersFail(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Devices = []config.Device{{Address: "127.91.7.3", Regions: config.DefaultRegionsPort}}
	c.Admin.Listen, c.Admin.Health = "127.0.0.1:0", "127.0.0.1:0"
	s, err := Start(t.Context(), c, Options{Targets: []Target{}})
	if err != nil {
		t.Fatal(err)
	}
	s.admin.ln.Close()
	s.probing.ln.Close()
	<-s.admin.done // Failed was not called
	<-s.probing.done
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_ = s.Shutdown(ctx) // it returns, although the listeners are closed already
	for range 2 {
		if <-s.Failed() == nil {
			t.Error("a listener failed for no reason")
		}
	}
}
