//go:build !portable

package owner_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/verbs"
)

// When the owner ends, the connection manager tells its users, because the
// events that they wait for do not come.
func TestOwnerEndsUnderListener(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	dev := openOn(t, "127.0.0.1", verbs.Config{})
	ch := cm.NewEventChannel(cm.WithDevices(dev))
	defer ch.Close()
	id, err := ch.CreateID(cm.TCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer id.Close()
	if err := errors.Join(id.BindAddr(netip.AddrPortFrom(dev.Addr(), 0)), id.Listen(8)); err != nil {
		t.Fatal(err)
	}
	o.Close()
	e, err := ch.Get(t.Context())
	if err != nil || e.Type != cm.EventDeviceRemoval || e.ID != id {
		t.Errorf("%v, %v", e, err)
	}
	if err := cm.Start(dev); !errors.Is(err, cm.ErrClosed) {
		t.Errorf("a connection manager on a device that has failed: %v", err)
	}
}
