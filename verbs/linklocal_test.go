package verbs_test

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestLinkLocal: two hosts on one link, each with a name of its own for it. A
// zone in the peer's Endpoint says nothing, whatever it is. A zone has a
// meaning on its own host only (RFC 4007 6).
func TestLinkLocal(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"", "left", "right", "elsewhere"} {
		t.Run("zone "+zone, func(t *testing.T) {
			t.Parallel()
			left, right := netip.MustParseAddr("fe80::1%left"), netip.MustParseAddr("fe80::2%right")
			a, b := fabricSides(t, left, right)
			forA, forB := overJSON(t, b.qp.Endpoint()), overJSON(t, a.qp.Endpoint())
			if forA.Addr.Zone() != "" {
				t.Errorf("the Endpoint has the zone of its host: %v", forA)
			}
			forA.Addr, forB.Addr = forA.Addr.WithZone(zone), forB.Addr.WithZone(zone)
			check(t, a.qp.Connect(t.Context(), overJSON(t, forA)))
			check(t, b.qp.Connect(t.Context(), overJSON(t, forB)))
			if peer := a.qp.Query().AV.DGID; peer != right.WithZone("left") {
				t.Errorf("the peer is %v, want it in the zone of the device", peer)
			}
			want := a.fill(1)
			a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(0, 8192)}, Remote: b.mr.RemoteAt(0)})
			a.waitOK(1)
			if !bytes.Equal(b.mr.Bytes()[:8192], want[:8192]) {
				t.Error("other bytes arrived")
			}
			b.post(verbs.SendWR{ID: 2, Opcode: verbs.OpRead, SGList: []verbs.SGE{b.mr.Slice(0, 64)}, Remote: a.mr.RemoteAt(0)})
			b.waitOK(2)
		})
	}
}

// A link-local peer is on the link of the device, which must have one.
func TestLinkLocalPeerOfGlobalDevice(t *testing.T) {
	t.Parallel()
	a, b := fabricSides(t, netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("fe80::2%right"))
	err := a.qp.Connect(t.Context(), b.qp.Endpoint())
	if err == nil || !strings.Contains(err.Error(), "open the device on the link-local address") {
		t.Errorf("connected: %v", err)
	}
}

// fabricSides makes two sides on a network, not connected.
func fabricSides(t *testing.T, left, right netip.Addr) (a, b *side) {
	t.Helper()
	la, lb := fabric.Pair(left, right)
	da, err := verbs.OpenLink(la, verbs.Config{})
	check(t, err)
	db, err := verbs.OpenLink(lb, verbs.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, da.Close()); check(t, db.Close()) })
	return newSide(t, da, 64<<10), newSide(t, db, 64<<10)
}

// overJSON returns what the other side makes of an Endpoint.
func overJSON(t *testing.T, e verbs.Endpoint) (got verbs.Endpoint) {
	t.Helper()
	text, err := json.Marshal(e)
	check(t, err)
	check(t, json.Unmarshal(text, &got))
	return got
}
