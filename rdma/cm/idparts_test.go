package cm

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// A peer that takes a smaller path MTU is asked once more, for that one; any
// other rejection is the end.
func TestTermsAskForASmallerPathMTU(t *testing.T) {
	t.Parallel()
	terms := terms{typ: verbs.RC, req: mad.REQ{PathMTU: uint8(verbs.MTU4096)}}
	if terms.lower(ErrUnreachable) || terms.lower(&RejectedError{Reason: ReasonConsumer, Info: mtuInfo(verbs.MTU1024)}) {
		t.Error("asks again where the peer did not reject for the path MTU")
	}
	rejected := &RejectedError{Reason: ReasonMTU, Info: mtuInfo(verbs.MTU1024)}
	if !terms.lower(rejected) || terms.req.PathMTU != uint8(verbs.MTU1024) {
		t.Errorf("asks for path MTU %d", terms.req.PathMTU)
	}
	if terms.lower(rejected) {
		t.Error("asks again for what was rejected")
	}
}

// A REQ or REP with too much private data, or without a queue pair, is refused
// before anything is done with a device.
func TestTermsRefuse(t *testing.T) {
	t.Parallel()
	var terms terms
	long := &ConnParam{PrivateData: make([]byte, MaxAcceptPrivate+1), QPN: 2}
	if err := terms.offer(long, nil, nil, netip.AddrPort{}, netip.AddrPort{}); err == nil {
		t.Error("a REQ with too much private data")
	}
	if _, err := terms.grant(long, nil, nil, netip.Addr{}); err == nil {
		t.Error("a REP with too much private data")
	}
	if _, err := terms.grant(&ConnParam{}, nil, nil, netip.Addr{}); err == nil {
		t.Error("a REP without a queue pair")
	}
}

// Without a device nothing is joined, and what was not joined is not left.
func TestGroupsWithoutADevice(t *testing.T) {
	t.Parallel()
	var gs groups
	group := netip.MustParseAddr("239.1.1.1")
	if gs.join(nil, nil, group) == nil || len(gs) != 0 {
		t.Error("a group is joined on no device")
	}
	if err := gs.leave(nil, group); !errors.Is(err, verbs.ErrNotAttached) {
		t.Errorf("leaving it: %v", err)
	}
	gs.leaveAll(nil)
}

// Nothing is bound to reach the unspecified address.
func TestBindingTowardsNoHost(t *testing.T) {
	t.Parallel()
	b := binding{space: TCP}
	if err := b.towards(nil, netip.AddrPort{}, netip.MustParseAddrPort("0.0.0.0:1")); err == nil || b.port || b.held != nil {
		t.Errorf("%v, %+v", err, b)
	}
	b.release() // of nothing
}

// A closed ID takes no call, and says so.
func TestStateOfAClosedID(t *testing.T) {
	t.Parallel()
	if err := idClosed.want("Connect", idRouteResolved, idClosed); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	var state *StateError
	if err := idBound.want("Connect", idRouteResolved); !errors.As(err, &state) || state.State != "bound" || state.Want != "route resolved" {
		t.Errorf("%v", err)
	}
}
