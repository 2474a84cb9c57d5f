package verbs_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// A device whose link something else has closed, as the owner of a shared port
// that ends does, makes no queue pair any more: it could never send.
func TestNoQueuePairOnAFailedDevice(t *testing.T) {
	t.Parallel()
	link, other := fabric.Pair(addrA, addrB)
	defer other.Close()
	dev, err := verbs.OpenLink(link, verbs.Config{})
	check(t, err)
	defer dev.Close()
	pd, err := dev.AllocPD()
	check(t, err)
	cq, err := dev.CreateCQ(4)
	check(t, err)
	config := verbs.QPConfig{SendCQ: cq, RecvCQ: cq}
	_, err = pd.CreateQP(config)
	check(t, err)
	check(t, link.Close())
	for e := range dev.Events(context.Background()) {
		if e.Event == verbs.EventDeviceFatal {
			break
		}
	}
	switch _, err := pd.CreateQP(config); {
	case err == nil:
		t.Error("a failed device makes a queue pair")
	case !errors.Is(err, verbs.ErrClosed) || !strings.Contains(err.Error(), "device has failed"):
		t.Errorf("%v", err)
	}
}
