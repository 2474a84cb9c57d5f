package programs

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/verbs"
)

func read(t *testing.T, h *Host, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(h.config.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(b), "\n")
}

// The adapter finds in the file of a device what it opens.
func TestDeviceFile(t *testing.T) {
	t.Parallel()
	h := realHost(t, Config{})
	addr := h.Ports()[0].Addr
	guid := strings.ReplaceAll(read(t, h, "sys/class/infiniband/rxe_lo0/node_guid"), ":", "")
	if want, got := fmt.Sprintf("address=%v\nname=rxe_lo0\nindex=0\nguid=%s\nleased=1\nloopback=1", addr, guid), read(t, h, "dev/infiniband/uverbs0"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := read(t, h, "dev/infiniband/rdma_cm"); got != "" {
		t.Errorf("rdma_cm has %q", got)
	}
	if got := read(t, h, "sys/class/infiniband_verbs/uverbs0/ibdev"); got != "rxe_lo0" {
		t.Errorf("ibdev is %q", got)
	}
	for _, name := range []string{"dev/infiniband/uverbs0", "sys/class/infiniband/rxe_lo0/ports/1/state"} {
		st, err := os.Stat(filepath.Join(h.config.Dir, name))
		if err != nil || st.Mode().Perm()&0o022 != 0 || st.Mode().Perm()&0o044 != 0o044 {
			t.Errorf("%s: %v, %v: others read it and do not write it", name, st.Mode(), err)
		}
	}
}

// A process that asks in the directory has a lease, which the host tells of:
// while it lasts, and after it.
func TestLeasesOfTheDirectory(t *testing.T) {
	t.Parallel()
	h := realHost(t, Config{})
	addr := h.Ports()[0].Addr
	l, err := lease.OpenAt(filepath.Join(h.PortDir(), lease.SocketName(addr, 0)), lease.Config{})
	if err != nil {
		t.Fatal(err)
	}
	list := h.Ports()[0].Leases
	if len(list) != 2 || list[1].PID != os.Getpid() || list[1].UID != uint32(os.Geteuid()) {
		t.Errorf("the leases are %+v", list)
	}
	slot := list[1].Slot
	for _, link := range l.Links() {
		if err := link.Close(); err != nil {
			t.Error(err)
		}
	}
	for len(h.Ports()[0].Ended) == 0 { // until the owner sees the end
	}
	if ended := h.Ports()[0].Ended; len(ended) != 1 || ended[0].Slot != slot {
		t.Errorf("%+v have ended", ended)
	}
}

// Two daemons do not share a directory, and the second one does no harm.
func TestADirectoryHasOneHost(t *testing.T) {
	t.Parallel()
	h := realHost(t, Config{})
	if _, err := Listen(h.config); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v", err)
	}
	read(t, h, "dev/infiniband/uverbs0")
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Listen(h.config)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if _, err := os.Stat(h.config.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is there: %v", err)
	}
}

// Of two daemons one owns the port of an address. The other one says which
// process has it, and can share it.
func TestAnAddressHasOneOwner(t *testing.T) {
	t.Parallel()
	h := realHost(t, Config{})
	other, err := Listen(Config{Dir: shortDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.OpenDevice(h.Ports()[0].Addr, verbs.Config{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v", err)
	}
	if err := other.Ready(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(filepath.Join(other.config.Dir, "dev/infiniband")); err != nil || len(entries) > 0 {
		t.Errorf("it has the files %v, %v", entries, err)
	}
	if err := other.ShareDevice(h.Ports()[0].Addr, verbs.Config{}); err != nil {
		t.Fatalf("it cannot share the port: %v", err)
	}
	if _, err := os.Stat(filepath.Join(other.config.Dir, "dev/infiniband/uverbs0")); err != nil {
		t.Error(err)
	}
	its := other.Ports()[0]
	if mine := h.Ports()[0].Leases; len(mine) != 2 || len(its.Leases) != 2 || its.Lack != nil {
		t.Errorf("the owner has the leases %v, the other %v, %v", mine, its.Leases, its.Lack)
	}
	h.Close()
	if its = other.Ports()[0]; len(its.Leases) != 0 || its.Lack == nil {
		t.Errorf("when the owner has ended, the other has the leases %v", its.Leases)
	}
}

// Where a port has no owner there is nothing to share, and it stays free.
func TestNoOwnerToShareWith(t *testing.T) {
	t.Parallel()
	h, err := Listen(Config{Dir: shortDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	addr := loopback()()
	if err := h.ShareDevice(addr, verbs.Config{}); !errors.Is(err, errNoOwner) {
		t.Errorf("it shares what nothing owns: %v", err)
	}
	if err := h.OpenDevice(addr, verbs.Config{}); err != nil {
		t.Errorf("the port is not free: %v", err)
	}
}

// A daemon that was killed leaves its files. The next one has its own.
func TestFilesOfADaemonThatWasKilled(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	old := filepath.Join(dir, "dev/infiniband/uverbs7")
	if err := errors.Join(os.MkdirAll(filepath.Dir(old), 0o755), os.WriteFile(old, nil, 0o644),
		os.WriteFile(filepath.Join(dir, holdSocket), nil, 0o644), os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600), os.WriteFile(filepath.Join(dir, freshFile+"1"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	h := realHost(t, Config{Dir: dir})
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an old device is there: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, freshFile+"*")); err != nil || len(left) > 0 {
		t.Errorf("%q are left, %v", left, err)
	}
	held, err := Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	held.Close()
	read(t, h, "dev/infiniband/uverbs0")
}

// What belongs to another user is no directory for devices: programs would open
// what that user has put there.
func TestHostileDirectories(t *testing.T) {
	t.Parallel()
	file := filepath.Join(shortDir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	locked := shortDir(t)
	if err := os.Symlink(file, filepath.Join(locked, "lock")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, dir, want string }{
		{"relative", "relative", "absolute"},
		{"long", "/tmp/" + strings.Repeat("x", 120), "shorter"},
		{"a file", file, "not a directory"},
		{"a link in the place of the lock", locked, "symbolic links"},
	} {
		h, err := Listen(Config{Dir: c.dir})
		if err == nil {
			h.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	foreign := shortDir(t)
	if err := os.Chown(foreign, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(Config{Dir: foreign}); err == nil || !strings.Contains(err.Error(), "user 12345") {
		t.Errorf("another user's: %v", err)
	}
}

// A directory that others may write is warned of: a volume of a pod is one.
func TestWritableDirectory(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	h, err := Listen(Config{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	if !strings.Contains(log.String(), "chmod go-w") {
		t.Errorf("the log has %q", log.String())
	}
}

// Users are those of the configuration, and always the daemon's own.
func TestUsers(t *testing.T) {
	t.Parallel()
	own := uint32(os.Geteuid())
	for _, c := range []struct {
		name  string
		allow func(uint32) bool
		uid   uint32
		want  bool
	}{
		{"nothing is said", nil, own + 1, false},
		{"nothing is said, its own", nil, own, true},
		{"others may, its own, too", func(u uint32) bool { return u == own+1 }, own, true},
		{"others may", func(u uint32) bool { return u == own+1 }, own + 1, true},
		{"not all others", func(u uint32) bool { return u == own+1 }, own + 2, false},
	} {
		h := &Host{config: Config{Allow: c.allow}}
		if got := h.allows(c.uid); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A host waits for the first one to come, outlives the last one for a time, and
// lets none in after that.
func TestWait(t *testing.T) {
	t.Parallel()
	h := realHost(t, Config{})
	held, err := Hold(h.config.Dir)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.Wait(t.Context(), time.Hour, 0)
	}()
	l, err := lease.OpenAt(filepath.Join(h.PortDir(), lease.SocketName(h.Ports()[0].Addr, 0)), lease.Config{})
	if err != nil {
		t.Fatal(err)
	}
	held.Close()
	select {
	case <-ended:
		t.Error("it ends while a process has a lease")
	default:
	}
	for _, link := range l.Links() {
		link.Close()
	}
	<-ended
	if f, err := Hold(h.config.Dir); err == nil {
		f.Close()
		t.Error("a process is let in after the end")
	}
}

// TestWaitForTheFirst: the process that has started a host may take longer to
// come than the host outlives the last one.
func TestWaitForTheFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &Host{changed: make(chan struct{})}
		begin := time.Now()
		h.Wait(t.Context(), time.Minute, time.Second)
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("no process came, and it waited for %v", took)
		}
		h = &Host{changed: make(chan struct{}), came: true}
		begin = time.Now()
		h.Wait(t.Context(), time.Minute, time.Second)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("the last one went, and it waited for %v", took)
		}
	})
}

// The counters of a device are sums over its leases, and do not go back when
// one ends.
func TestCountersAreSums(t *testing.T) {
	t.Parallel()
	h := realHost(t, Config{})
	d := h.devices[0]
	before := d.counters()
	d.ended.Add(owner.Lease{TxPackets: 7, RxPackets: 11})
	h.refresh()
	after := d.counters()
	if after["sent_pkts"] != before["sent_pkts"]+7 || after["rcvd_pkts"] != before["rcvd_pkts"]+11 {
		t.Errorf("before %v, after %v", before, after)
	}
	if got := read(t, h, "sys/class/infiniband/rxe_lo0/ports/1/hw_counters/rcvd_pkts"); got != fmt.Sprint(after["rcvd_pkts"]) {
		t.Errorf("the file has %s", got)
	}
}

// A program that reads a counter again has a fresh one.
func TestFilesThatAreReadAreFresh(t *testing.T) {
	t.Parallel()
	h := realHost(t, Config{})
	h.devices[0].ended.Add(owner.Lease{TxPackets: 1 << 40})
	tick := time.NewTicker(refreshEvery / 10)
	defer tick.Stop()
	for len(read(t, h, "sys/class/infiniband/rxe_lo0/ports/1/hw_counters/sent_pkts")) < 10 {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("it stays as it was")
		}
	}
}

// Leases that have ended take a bounded memory, and still count.
func TestEndedLeasesAreBounded(t *testing.T) {
	t.Parallel()
	var e Ended
	for i := range 3 * mostEnded {
		e.Add(owner.Lease{PID: i, TxBytes: 1})
	}
	list, sum := e.Latest()
	if len(list) != mostEnded || list[0].PID != 2*mostEnded || sum.TxBytes != 3*mostEnded {
		t.Errorf("%d leases from %d on, %d bytes", len(list), list[0].PID, sum.TxBytes)
	}
}

// What comes from a process that holds the host has no meaning, and ends it.
func TestHoldersSayNothing(t *testing.T) {
	t.Parallel()
	h := realHost(t, Config{})
	held, err := Hold(h.config.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := held.Write(bytes.Repeat([]byte{0xa5}, 1000)); err != nil {
		t.Fatal(err)
	}
	if n, err := held.Read(make([]byte, 10)); n > 0 {
		t.Errorf("it answers %d bytes, %v", n, err)
	}
}
