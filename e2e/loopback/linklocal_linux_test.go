package loopback

import (
	"encoding/json"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestLinkLocal: two hosts on a cable with nothing but link-local addresses,
// each in a network namespace with a name of its own for the interface, hand
// each other their Endpoints as text.
func TestLinkLocal(t *testing.T) {
	t.Parallel()
	if !testnet.Isolated(t) {
		return
	}
	testnet.Veth(t, "here0", "there0", "1500")
	// Neighbors are known: a solicitation that is lost is repeated after a
	// second.
	testnet.IP(t, "link set here0 address 02:00:00:00:00:01")
	testnet.IP(t, "link set there0 address 02:00:00:00:00:02")
	testnet.IP(t, "address add fe80::1/64 dev here0 nodad")
	testnet.IP(t, "neighbor add fe80::2 lladdr 02:00:00:00:00:02 dev here0 nud permanent")
	dev, err := verbs.Open("fe80::1%here0")
	check(t, err)
	a := newSide(t, dev)
	forThem, err := json.Marshal(a.qp.Endpoint())
	check(t, err)
	testnet.Elsewhere(t, "there0", "here0", func() {
		testnet.IP(t, "address add fe80::2/64 dev there0 nodad")
		testnet.IP(t, "neighbor add fe80::1 lladdr 02:00:00:00:00:01 dev there0 nud permanent")
		dev, err := verbs.Open("there0")
		if err != nil {
			t.Error(err)
			return
		}
		b := newSide(t, dev)
		var forA, forB verbs.Endpoint
		forUs, err := json.Marshal(b.qp.Endpoint())
		check(t, err)
		check(t, json.Unmarshal(forUs, &forA))
		check(t, json.Unmarshal(forThem, &forB))
		check(t, b.qp.Connect(t.Context(), forB))
		check(t, a.qp.Connect(t.Context(), forA))
		exercise(t, a, b, []int{1, 100_000})
	})
	check(t, a.pd.Device().Close())
}
