package verbs_test

import (
	"crypto/tls"
	"net/netip"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/verbs"
)

// secureOwners opens devices that own their ports, and are secured.
func secureOwners(t *testing.T, addrs ...netip.Addr) (list []*verbs.Device) {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	ca := testcert.New(t)
	for _, addr := range addrs {
		cert := ca.IssueFor(t, testcert.Subject{CN: "host", Addr: addr.String()})
		dev, err := verbs.OpenAddr(addr, verbs.Config{Owner: true, Secure: &verbs.Secure{TLS: &tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{cert}}}})
		check(t, err)
		t.Cleanup(func() { check(t, dev.Close()) })
		list = append(list, dev)
	}
	return list
}

// TestSecuredPortHasNoSharedMemory: a process that shares a secured port, and
// does not know it, has no shared memory of its own: what passes there is
// neither sealed nor opened.
func TestSecuredPortHasNoSharedMemory(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	addr := netip.MustParseAddr("127.0.9.1")
	secureOwners(t, addr)
	for range 300 { // more than the port has slots
		dev, err := verbs.OpenAddr(addr, verbs.Config{Leased: true, SharedMemory: true})
		if err == nil {
			check(t, dev.Close())
		}
		if err == nil || !strings.Contains(err.Error(), "SharedMemory") || !strings.Contains(err.Error(), addr.String()) {
			t.Fatalf("got %v", err)
		}
	}
	dev, err := verbs.OpenAddr(addr, verbs.Config{Leased: true})
	check(t, err)
	if _, secured := dev.GuardCounters(); !secured {
		t.Error("the device is not secured")
	}
	check(t, dev.Close())
}

// TestGuardCounters: a device, and one that shares its port, count each what
// they have sealed and opened, and what has come in clear.
func TestGuardCounters(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	a, b := netip.MustParseAddr("127.0.9.2"), netip.MustParseAddr("127.0.9.3")
	devs := secureOwners(t, a, b)
	leased, err := verbs.OpenAddr(a, verbs.Config{Leased: true})
	check(t, err)
	defer func() { check(t, leased.Close()) }()
	x, y := newSide(t, leased, 64), newSide(t, devs[1], 64)
	connect(t, x.qp, y.qp)
	for id := range uint64(2) { // what has left is counted before more does
		x.post(verbs.SendWR{ID: id, Opcode: verbs.OpWrite, SGList: []verbs.SGE{x.mr.Slice(0, 8)}, Remote: y.mr.RemoteAt(0)})
		x.waitOK(id)
	}
	for name, dev := range map[string]*verbs.Device{"leased": leased, "peer": devs[1]} {
		if c, secured := dev.GuardCounters(); !secured || c.Sealed == 0 || c.Opened == 0 || c.Clear != 0 {
			t.Errorf("%s: %v, %+v", name, secured, c)
		}
	}
	if c, _ := devs[0].GuardCounters(); c.Sealed != 0 {
		t.Errorf("the owner has sealed what is of another process: %+v", c)
	}
	clear, err := verbs.OpenAddr(netip.MustParseAddr("127.0.9.4"), verbs.Config{})
	check(t, err)
	defer clear.Close()
	if _, secured := clear.GuardCounters(); secured {
		t.Error("a device in clear says that it is secured")
	}
	x, y = newSide(t, clear, 64), newSide(t, devs[1], 64)
	connect(t, x.qp, y.qp, verbs.WithConfig(verbs.ConnectConfig{Timeout: 10, RetryCount: verbs.Set(1)}))
	x.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{x.mr.Slice(0, 8)}, Remote: y.mr.RemoteAt(0)})
	if wc := x.wait(); wc.Status != verbs.StatusRetryExcErr {
		t.Errorf("in clear: %v", wc.Status)
	}
	if c, _ := devs[1].GuardCounters(); c.Clear == 0 {
		t.Errorf("nothing has come in clear: %+v", c)
	}
}

// TestSecureFailed: a program is told why there are no keys with a peer, on the
// side that connects and on the other one.
func TestSecureFailed(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	ca, other := testcert.New(t), testcert.New(t)
	type failure struct {
		peer netip.Addr
		err  error
	}
	addrs := []netip.Addr{netip.MustParseAddr("127.0.9.5"), netip.MustParseAddr("127.0.9.6")}
	var sides []*side
	var told []chan failure
	for i, addr := range addrs {
		cert := []*testcert.Authority{ca, other}[i].IssueFor(t, testcert.Subject{CN: "host", Addr: addr.String()})
		failures := make(chan failure, 1000)
		dev, err := verbs.OpenAddr(addr, verbs.Config{Secure: &verbs.Secure{
			TLS:    &tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{cert}},
			Failed: func(peer netip.Addr, err error) { failures <- failure{peer, err} },
		}})
		check(t, err)
		defer func() { check(t, dev.Close()) }()
		sides, told = append(sides, newSide(t, dev, 64)), append(told, failures)
	}
	x, y := sides[0], sides[1]
	connect(t, x.qp, y.qp, verbs.WithConfig(verbs.ConnectConfig{Timeout: 10, RetryCount: verbs.Set(1)}))
	x.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{x.mr.Slice(0, 8)}, Remote: y.mr.RemoteAt(0)})
	if wc := x.wait(); wc.Status != verbs.StatusRetryExcErr {
		t.Errorf("with a certificate of another authority: %v", wc.Status)
	}
	for i := range addrs {
		if f := <-told[i]; f.peer != addrs[1-i] || f.err == nil {
			t.Errorf("%v was told of %v: %v", addrs[i], f.peer, f.err)
		}
	}
}
