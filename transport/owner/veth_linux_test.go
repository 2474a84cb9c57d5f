//go:build !portable

package owner_test

import (
	"net/netip"
	"os/exec"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/transport/udp"
	"github.com/gosoftroce/rocev2/verbs"
)

const vethOwner, vethPeer = "10.9.0.1", "10.9.0.2"

// coalesce has the kernel coalesce packets that come by an interface within a
// millisecond, from the other end of a cable. It skips the test where that
// cannot be had.
func coalesce(t *testing.T, iface, far string) {
	t.Helper()
	const script = `mount -t sysfs none /sys && echo 1000000 > /sys/class/net/$1/gro_flush_timeout && echo 100 > /sys/class/net/$1/napi_defer_hard_irqs`
	for _, cmd := range [][]string{
		// What a socket of this machine sends by an interface with
		// segmentation offload does not pass GRO.
		{"ethtool", "-K", far, "tso", "off"}, {"ethtool", "-K", iface, "gro", "on"},
		{"unshare", "--mount", "sh", "-c", script, "sh", iface},
	} {
		if _, err := exec.LookPath(cmd[0]); err != nil {
			t.Skipf("%s is not installed (on Debian: apt-get install ethtool util-linux)", cmd[0])
		}
		if out, err := exec.CommandContext(t.Context(), cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Skipf("this user cannot have %s coalesce packets (run as root): %v: %s", iface, err, out)
		}
	}
}

// onTwoHosts makes leases of one owner here, and a device in another network
// namespace, at the other end of a cable whose packets the kernel coalesces
// here. talk is called there.
func onTwoHosts(t *testing.T, talk func(o *owner.Owner, peer *verbs.Device, leases []*verbs.Device)) {
	testnet.Veth(t, "here0", "there0", "4200")
	testnet.IP(t, "addr add "+vethOwner+"/24 dev here0")
	coalesce(t, "here0", "there0")
	o, err := owner.Listen(owner.Config{Addr: netip.MustParseAddr(vethOwner)})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	var leases []*verbs.Device
	for range 2 {
		leases = append(leases, openOn(t, vethOwner, verbs.Config{}))
	}
	testnet.Elsewhere(t, "there0", "here0", func() {
		testnet.IP(t, "addr add "+vethPeer+"/24 dev there0")
		// Packets of their own, as adapters send them: a run would come
		// as it is.
		link, err := udp.Open(netip.MustParseAddr(vethPeer), udp.Config{DisableGSO: true})
		if err != nil {
			t.Error(err)
			return
		}
		dev, err := verbs.OpenLink(link, verbs.Config{})
		if err != nil {
			t.Error(err)
			return
		}
		defer dev.Close()
		talk(o, dev, leases)
	})
}

// kinds are peers by what they know of a lease that they are connected to.
var kinds = []struct {
	name   string
	strays bool
	change func(*verbs.Endpoint)
}{
	{"native", false, func(*verbs.Endpoint) {}},
	{"native, an earlier release", true, func(e *verbs.Endpoint) { e.Slots = 0 }},
	// What an unmodified program says of a peer has room for neither.
	{"unmodified program", true, func(e *verbs.Endpoint) { e.Slots, e.Native = 0, false }},
}

// Packets of the network come coalesced to leases, also where most slots are
// idle. Those for two leases that have one source port come in one buffer. Each
// comes to its own lease, and no byte is another one. A peer that knows of the
// slots has a source port for each, and nothing goes astray.
func TestStraysOverVeth(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	onTwoHosts(t, func(o *owner.Owner, peer *verbs.Device, leases []*verbs.Device) {
		for _, k := range kinds { // the last ones' strays may be late
			before := o.Stats().Strays
			alternate(t, peer, leases, k.change)
			strays := o.Stats().Strays - before
			for _, l := range leases {
				if s := l.Stats().Link; s.RxBuffers > s.RxPackets/2 {
					t.Errorf("%d packets came in %d buffers", s.RxPackets, s.RxBuffers)
				}
			}
			t.Logf("%s: %d strays", k.name, strays)
			if !k.strays && strays > 0 {
				t.Errorf("%s: %d packets go astray that have a source port for each slot", k.name, strays)
			}
			if k.strays && strays == 0 {
				t.Errorf("%s: nothing has gone astray: the kernel does not coalesce, and the test shows nothing", k.name)
			}
		}
	})
}

// alternate exchanges messages with queue pairs of both leases at a time.
func alternate(t *testing.T, peer *verbs.Device, leases []*verbs.Device, change func(*verbs.Endpoint)) {
	done := make(chan error, 2*len(leases))
	for i, dev := range leases {
		p, q, err := connected(peer, dev, change)
		if err != nil {
			t.Error(err)
			return
		}
		defer p.close()
		defer q.close()
		for _, f := range []func(int) error{
			func(k int) error { return p.exchange(10+i, 20+i, k) },
			func(k int) error { return q.exchange(20+i, 10+i, k) },
		} {
			go func() {
				var err error
				for k := 0; k < 30 && err == nil; k++ {
					err = f(k)
				}
				done <- err
			}()
		}
	}
	for range 2 * len(leases) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// connected makes queue pairs of two devices that are connected, and know of
// each other what change leaves.
func connected(a, b *verbs.Device, change func(*verbs.Endpoint)) (p, q *end, err error) {
	if p, err = newEnd(a); err != nil {
		return nil, nil, err
	}
	if q, err = newEnd(b); err != nil {
		return nil, nil, err
	}
	to, from := q.qp.Endpoint(), p.qp.Endpoint()
	change(&to)
	change(&from)
	if err = p.connect(to); err == nil {
		err = q.connect(from)
	}
	return p, q, err
}
