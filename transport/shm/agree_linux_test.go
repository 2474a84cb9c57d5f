//go:build !portable

package shm

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Agreements that are not to be are refused, and the packets go by UDP.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, why string
		change    func(a, b *device)
	}{
		{"another user connects", "is of user", func(_, b *device) { b.uid++ }},
		{"another user listens", "is of user", func(a, _ *device) { a.uid++ }},
		{"another namespace", "another network namespace", func(a, _ *device) { a.namespace++ }},
		{"a claim to an address of nobody", "no process of this user has", func(a, _ *device) {
			a.local = netip.AddrPortFrom(netip.MustParseAddr("192.0.2.77"), a.local.Port())
		}},
		{"a claim to the own address", "is no peer of", func(a, b *device) { a.local = b.local }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := privateDir(t)
			r := newReasons()
			addr := loopback()
			var db *device
			b := openChanged(t, dir, loopback(), 1, func(d *device) {
				d.trace, db = r.note, d
				c.change(&device{}, d)
			})[0]
			a := openChanged(t, dir, addr, 1, func(d *device) {
				d.trace = r.note
				c.change(d, &device{local: db.local})
				if d.namespace != db.namespace {
					// It has found the socket all the same.
					if err := os.Symlink(db.name(b.Addr()), filepath.Join(dir, d.name(b.Addr()))); err != nil {
						t.Fatal(err)
					}
				}
			})[0]
			p := a.dev.peerAt(b.Addr())
			if err := a.dev.dial(p, a, 5); err == nil {
				t.Error("there is an agreement")
			} else {
				r.note(err)
			}
			r.await(t, c.why)
			if len(*a.conns.Load()) > 0 || len(*b.conns.Load()) > 0 {
				t.Error("there is memory all the same")
			}
		})
	}
}

// Directories that others can enter, or that are none, are not used.
func TestDirectories(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	open := filepath.Join(parent, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o750); err != nil {
		t.Fatal(err)
	}
	file, link := filepath.Join(parent, "file"), filepath.Join(parent, "link")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(parent, link); err != nil {
		t.Fatal(err)
	}
	if d, err := openDirectory(filepath.Join(parent, "none", "deep")); err == nil {
		d.close()
		t.Error("a directory is made in one that is not there")
	}
	another := func(path string) {
		t.Helper()
		d, err := openDirectory(path)
		if err != nil {
			t.Fatal(err)
		}
		defer d.close()
		if d.f.Name() != path+".1" {
			t.Errorf("%s is used for %s", d.f.Name(), path)
		}
	}
	for _, path := range []string{open, file, link} {
		another(path)
	}
	if os.Geteuid() == 0 {
		other := filepath.Join(parent, "other")
		if err := errors.Join(os.Mkdir(other, 0o700), os.Chown(other, 12345, -1)); err != nil {
			t.Fatal(err)
		}
		another(other)
	}
	good := filepath.Join(parent, "good")
	d, err := openDirectory(good)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if st, err := os.Stat(good); err != nil || st.Mode().Perm() != 0o700 {
		t.Error(st.Mode(), err)
	}
}

// What a process leaves that was killed is replaced and swept away; nothing of
// a live one is.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	d, err := openDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	addr := loopback()
	for _, name := range []string{socketPrefix + "1-dead", socketPrefix + "2-dead", unfinished + "dead"} {
		l, err := d.listen(name)
		if err != nil {
			t.Fatal(err)
		}
		l.Close() // without taking it out, as after a kill
	}
	before := time.Now().Add(-2 * unfinishedLife)
	if err := os.Chtimes(filepath.Join(dir, unfinished+"dead"), before, before); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := open(t, dir, addr, 1, nil)[0]
	alive := a.dev.listeners[0].names[0]
	d.sweep()
	if got := names(t, dir); !slices.Equal(got, []string{alive, "notes"}) {
		t.Errorf("there are %q", got)
	}
	// A stale one of the same name is replaced.
	stale, err := d.listen(alive)
	if err != nil {
		t.Fatal(err)
	}
	stale.Close()
	fresh, err := d.listen(alive)
	if err != nil {
		t.Fatal(err)
	}
	a.Close() // it is not its own any more
	if got := names(t, dir); !slices.Equal(got, []string{alive, "notes"}) {
		t.Errorf("there are %q", got)
	}
	fresh.remove()
	if got := names(t, dir); !slices.Equal(got, []string{"notes"}) {
		t.Errorf("there are %q", got)
	}
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// A link that ends leaves neither descriptors nor goroutines, on either side,
// however often; and the other side goes on.
func TestLeaks(t *testing.T) {
	dir := privateDir(t)
	b := open(t, dir, loopback(), 1, nil)[0]
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	rx := transport.NewRxBatch(4)
	settle := func() {
		for len(*b.conns.Load()) > 0 {
			if _, err := b.Recv(rx); err != nil {
				t.Fatal(err)
			}
			runtime.Gosched()
		}
	}
	var fds, goroutines int
	for i := range rounds {
		if i == 10 {
			settle()
			fds, goroutines = descriptors(), runtime.NumGoroutine()
		}
		a := open(t, dir, loopback(), 1, nil)[0]
		ab := newStream(t, a, b.Addr())
		ab.share(b)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		settle()
	}
	// What ends has ended when the connections are gone, but for the last
	// instructions of goroutines.
	for range 1_000_000 {
		if descriptors() <= fds && runtime.NumGoroutine() <= goroutines {
			break
		}
		runtime.Gosched()
	}
	if f, g := descriptors(), runtime.NumGoroutine(); f > fds+2 || g > goroutines+2 {
		t.Errorf("%d descriptors became %d, %d goroutines %d", fds, f, goroutines, g)
	}
	if b.dev.conns != 0 {
		t.Errorf("%d connections", b.dev.conns)
	}
}

// Packets whose bytes change while they are read do no harm.
func TestPacketsThatChange(t *testing.T) {
	t.Parallel()
	data := packet(5, 7, 64)
	b := append(bytes.Clone(data), 0, 0, 0, 0)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	fd, err := newMemory()
	if err != nil {
		t.Fatal(err)
	}
	m, err := mapMemory(fd)
	closeAll([]int{fd})
	if err != nil {
		t.Fatal(err)
	}
	defer unmapMemory(m)
	copy(m, b)
	wg.Go(func() {
		r := rand.New(rand.NewPCG(3, 4))
		for {
			select {
			case <-stop:
				return
			default:
				m[r.IntN(2)] = byte(r.Uint32())
			}
		}
	})
	var p rocev2.Packet
	for range 200_000 {
		if p.Parse(m[:len(b)]) != nil {
			continue
		}
		info, ok := p.BTH.Opcode.Info()
		if !ok || info.HeaderLen+len(p.Payload)+int(p.BTH.PadCount)+rocev2.ICRCLen != len(b) && len(p.Payload) > 0 {
			t.Fatalf("%+v, %d bytes", p.BTH, len(p.Payload))
		}
	}
	close(stop)
	wg.Wait()
}
