package world_test

import (
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestSealing: a device cannot seal here, and says so when it is opened.
func TestSealing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Network: star(2), Device: verbs.Config{Sealing: true}})
	if _, err := w.Device(0); err == nil || !strings.Contains(err.Error(), "field Sealing") {
		t.Errorf("a device that is to seal: %v", err)
	}
}
