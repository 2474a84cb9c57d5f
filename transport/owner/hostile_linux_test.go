//go:build !portable

package owner_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/verbs"
)

func own(t *testing.T, c owner.Config) *owner.Owner {
	t.Helper()
	c.Addr = netip.MustParseAddr("127.0.0.1")
	o, err := owner.Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

func knock(t *testing.T, o *owner.Owner) *net.UnixConn {
	t.Helper()
	c, err := lease.Dial(o.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A client that asks for nonsense gets nothing, and costs nothing: neither
// goroutines nor files stay, even for clients that pass some, and the next one
// gets a lease.
func TestHostileClients(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	between(t, openOn(t, "127.0.0.1", verbs.Config{}), openOn(t, "127.0.0.1", verbs.Config{}), 2)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	hello := string((&lease.Message{Hello: &lease.Hello{Version: lease.Version, Shards: 1}}).Append(nil))
	for _, text := range []string{"", "x", strings.Repeat("[", 4096), strings.Repeat("a", 100000), `{"done":true}`, `{"hello":{}}`,
		`{"hello":{"version":1,"shards":3}}`, `{"hello":{"version":1,"shards":-1}}`, `{"hello":{"version":1,"shards":1048576}}`,
		`{"hello":{"version":99,"shards":1}}`, `{"hello":{"version":1,"shards":1,"command":"` + strings.Repeat("c", 300) + `"}}`,
		hello[:len(hello)-1]} {
		c := knock(t, o)
		for range 3 { // what comes later is not looked at
			if _, _, err := c.WriteMsgUnix([]byte(text), unix.UnixRights(int(null.Fd()), int(null.Fd())), nil); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.EMSGSIZE) {
				break
			}
		}
		c.CloseWrite()
		b, err := io.ReadAll(c)
		if m, e := lease.Parse(b); len(b) > 0 && (e != nil || m.Refused == nil) {
			t.Errorf("%.30q: %s, %v", text, b, err)
		}
		c.Close()
	}
	// A leaseholder that then talks nonsense loses its lease.
	c := knock(t, o)
	if _, err := c.Write([]byte(hello)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, lease.MaxMessage)
	if n, err := c.Read(b); err != nil || !strings.Contains(string(b[:n]), "grant") {
		t.Fatalf("%s, %v", b[:n], err)
	}
	if _, err := c.Write([]byte(hello)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil && !errors.Is(err, unix.ECONNRESET) {
		t.Error(err)
	}
	c.Close()
	d := openOn(t, "127.0.0.1", verbs.Config{})
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for openFiles(t) > files || runtime.NumGoroutine() > goroutines {
		runtime.Gosched() // what ends is ending
	}
}

// Silent connections keep no process out, however many there are.
func TestSilentClients(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	for range 200 {
		knock(t, o)
	}
	a, b := openOn(t, "127.0.0.1", verbs.Config{}), openOn(t, "127.0.0.1", verbs.Config{})
	between(t, a, b, 3)
}

// Each of many that ask at once has an answer, while others are silent.
func TestManyAskAtOnce(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	for range 20 {
		knock(t, o)
	}
	const many = 120
	begin, done := make(chan struct{}), make(chan error, many)
	for range many {
		go func() {
			<-begin
			l, err := lease.OpenAt(o.Socket(), lease.Config{})
			if err == nil {
				err = l.Links()[0].Close()
			}
			done <- err
		}()
	}
	close(begin)
	for range many {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// What cannot be had is an error that says why.
func TestRefusals(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	addr := netip.MustParseAddr("127.0.0.1")
	o := own(t, owner.Config{Slots: 8, Quota: owner.Quota{QPs: 3, Leases: 4}})
	first := openOn(t, "127.0.0.1", verbs.Config{})
	if n := first.Query().MaxQP; n != 3 {
		t.Errorf("MaxQP is %d, the quota is 3", n)
	}
	for i := range 4 {
		e, err := newEnd(first)
		if i < 3 && err != nil {
			t.Fatal(err)
		}
		if i == 3 && (err == nil || !strings.Contains(err.Error(), "at most 3 queue pairs")) {
			t.Errorf("queue pair %d of 3: %v, %v", i+1, e, err)
		}
	}
	for range 3 {
		openOn(t, "127.0.0.1", verbs.Config{})
	}
	want := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("error %v; want one of %q", err, what)
		}
	}
	_, err := verbs.OpenAddr(addr, verbs.Config{})
	want("has 4 leases", err)
	first.Close()
	_, err = verbs.OpenAddr(addr, verbs.Config{Shards: 4})
	want("no 4 side by side are free", err)
	if s := o.Stats(); s.Leases != 3 || s.Refused < 2 { // it has tried again while a slot rested
		t.Errorf("%+v", s)
	}
	_, err = verbs.OpenAddr(addr, verbs.Config{Owner: true})
	want(fmt.Sprintf("process %d owns", os.Getpid()), err)
}

// A user with devices of many shards does not have all slots: others get some.
func TestQuotaWhileSlotsAreFew(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	own(t, owner.Config{Slots: 16, Quota: owner.Quota{Leases: 4}})
	addr := netip.MustParseAddr("127.0.0.1")
	openOn(t, "127.0.0.1", verbs.Config{Shards: 8}) // there is room
	_, err := verbs.OpenAddr(addr, verbs.Config{})
	if err == nil || !strings.Contains(err.Error(), "8 slots of 127.0.0.1") {
		t.Errorf("error %v; the user has twice its share", err)
	}
}

// The owner tells what its leaseholders have.
func TestLeases(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	a, b := openOn(t, "127.0.0.1", verbs.Config{}), openOn(t, "127.0.0.1", verbs.Config{Shards: 2})
	between(t, a, b, 3)
	e, err := newEnd(b)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	list := o.Leases()
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	for _, l := range list {
		if l.PID != os.Getpid() || l.UID != uint32(os.Geteuid()) || l.TxPackets == 0 || l.RxBytes < messageLen || l.QPs != l.Slots-1 {
			t.Errorf("%+v", l)
		}
	}
}

// 64 processes with one connection each have one address.
func TestSixtyFourProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many processes: run without -short")
	}
	if !testnet.Isolated(t) {
		return
	}
	own(t, owner.Config{})
	var all []*process
	for range 64 {
		all = append(all, begin(t, "program", "127.0.0.1"))
	}
	ring(all, 5)
}

// When an owner is closed, the peers of its leaseholders are told, also those
// that send nothing.
func TestPeersLearnThatTheOwnerEnds(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	const many = 200 // they are told one after the other
	peer := openOn(t, "127.0.0.2", verbs.Config{})
	lc := rdma.ListenConfig{Device: peer}
	ln, err := lc.Listen(t.Context(), "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan *rdma.Conn, many)
	go func() {
		for range many {
			c, err := ln.Accept(t.Context())
			if err != nil {
				t.Error(err)
				break
			}
			accepted <- c
		}
		close(accepted)
	}()
	d := rdma.Dialer{Device: openOn(t, "127.0.0.1", verbs.Config{})}
	for range many {
		if _, err := d.Dial(t.Context(), ln.Addr().String()); err != nil {
			t.Fatal(err)
		}
	}
	var conns []*rdma.Conn
	for c := range accepted {
		conns = append(conns, c)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	for late := time.After(10 * time.Second); len(conns) > 0; conns = conns[1:] {
		select {
		case <-conns[0].Done():
		case <-late:
			t.Fatalf("%d of %d peers do not learn of it", len(conns), many)
		}
	}
}

// What a leaseholder says last has left when its device is closed: its program
// may end, and the owner with it.
func TestLastWordsArePassedOn(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	peer := openOn(t, "127.0.0.2", verbs.Config{})
	lc := rdma.ListenConfig{Device: peer}
	ln, err := lc.Listen(t.Context(), "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			if _, err := ln.Accept(t.Context()); err != nil {
				return
			}
		}
	}()
	for range 10 {
		dev := openOn(t, "127.0.0.1", verbs.Config{})
		d := rdma.Dialer{Device: dev}
		if _, err := d.Dial(t.Context(), ln.Addr().String()); err != nil {
			t.Fatal(err)
		}
		before := o.Stats().Relayed
		dev.Close()
		if s := o.Stats(); s.Leases != 0 || s.Relayed == before {
			t.Fatalf("the device is closed, and the owner is at %+v; it was at %d", s, before)
		}
	}
}
