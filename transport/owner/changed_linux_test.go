//go:build !portable

package owner_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/verbs"
)

// heard is what an owner has told.
type heard struct{ changed, ended atomic.Int64 }

func (h *heard) config() owner.Config {
	return owner.Config{Changed: func() { h.changed.Add(1) }, Ended: func(owner.Lease) { h.ended.Add(1) }}
}

// await waits until the owner has told that much.
func (h *heard) await(changed, ended int64) {
	for h.changed.Load() < changed || h.ended.Load() < ended {
		runtime.Gosched()
	}
}

// The owner tells of each lease when it begins and when it ends, however it
// ends, and of nothing else.
func TestOwnerTellsOfChanges(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	var h heard
	o := own(t, h.config())
	dev, err := verbs.OpenLease(o.Socket(), verbs.Config{Shards: 2})
	if err != nil {
		t.Fatal(err)
	}
	h.await(1, 0) // the leaseholder may learn of its lease first
	o.Leases()
	between(t, dev, dev, 1)
	if changed, ended := h.changed.Load(), h.ended.Load(); changed != 1 || ended != 0 {
		t.Errorf("told of %d changes and %d ends of one lease that there is", changed, ended)
	}
	p := begin(t, "program", "127.0.0.1")
	h.await(2, 0)
	p.kill()
	h.await(3, 1)
	dev.Close()
	h.await(4, 2)
	// A client that asks for nonsense, or only looks, has no lease.
	for _, text := range []string{"nonsense", `{"hello":{"version":0}}`, ""} {
		c := knock(t, o)
		if text != "" {
			if _, err := c.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		c.CloseWrite()
		for err := error(nil); err == nil; { // until the owner closes
			var n int
			if n, err = c.Read(make([]byte, lease.MaxMessage)); n == 0 {
				break
			}
		}
	}
	last, err := verbs.OpenLease(o.Socket(), verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h.await(5, 2)
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if changed, ended := h.changed.Load(), h.ended.Load(); changed != 6 || ended != 3 {
		t.Errorf("told of %d changes and %d ends of 3 leases", changed, ended)
	}
	last.Close()
}

// A process that cannot take what it has asked for has had no lease.
func TestLeaseThatNeverBegan(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	var h heard
	o := own(t, h.config())
	c := knock(t, o)
	if err := c.CloseRead(); err != nil {
		t.Fatal(err)
	}
	hello := lease.Message{Hello: &lease.Hello{Version: lease.Version, Shards: 1}}
	if _, err := c.Write(hello.Append(nil)); err != nil {
		t.Fatal(err)
	}
	for o.Stats().Refused == 0 {
		runtime.Gosched()
	}
	if s := o.Stats(); s.Leases != 0 || s.Granted != 0 || h.changed.Load() != 0 || h.ended.Load() != 0 {
		t.Errorf("%+v; told of %d changes and %d ends", s, h.changed.Load(), h.ended.Load())
	}
}

// A process that asks to own a port that has an owner closes its connection to
// that owner: the connection would have a place there until it has asked for
// something.
func TestRivalLetsGo(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	addr := netip.MustParseAddr("127.0.0.1")
	dir := t.TempDir()
	door, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, lease.SocketName(addr, 0)), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	taken, err := net.ListenPacket("udp", netip.AddrPortFrom(addr, 4791).String())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	before := openFiles(t)
	if _, err := owner.Listen(owner.Config{Addr: addr, Dir: dir}); err == nil {
		t.Fatal("the port has two owners")
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files are open, %d were before", after, before)
	}
}

// What an owner logs says of which address it is: there may be several.
func TestLogHasTheAddress(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	var h heard
	var said bytes.Buffer
	c := h.config()
	c.Log = slog.New(slog.NewTextHandler(&said, nil))
	o := own(t, c)
	dev, err := verbs.OpenLease(o.Socket(), verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	dev.Close()
	h.await(2, 1)
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	for _, what := range []string{"port leased", "lease ended"} {
		want := fmt.Sprintf("msg=%q address=127.0.0.1 ", what)
		if !strings.Contains(said.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, said.String())
		}
	}
}
