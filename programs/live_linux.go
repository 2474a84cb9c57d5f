package programs

import (
	"errors"
	"maps"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/programs/uverbs"
	"github.com/gosoftroce/rocev2/verbs"
)

// The state of a port as sysfs has it.
const (
	stateDown    = "1: DOWN"
	stateActive  = "4: ACTIVE"
	physPolling  = "2: Polling"
	physDisabled = "3: Disabled"
	physLinkUp   = "5: LinkUp"
)

// hardwareCounters are those of Soft-RoCE. Those without a value stay 0.
var hardwareCounters = []struct {
	name  string
	value func(*verbs.Stats, *verbs.QPStats) uint64
}{
	{"sent_pkts", func(s *verbs.Stats, _ *verbs.QPStats) uint64 { return s.Link.TxPackets }},
	{"rcvd_pkts", func(s *verbs.Stats, _ *verbs.QPStats) uint64 { return s.Link.RxPackets }},
	{"duplicate_request", func(_ *verbs.Stats, q *verbs.QPStats) uint64 { return q.Drops.Duplicate }},
	{"out_of_seq_request", func(_ *verbs.Stats, q *verbs.QPStats) uint64 { return q.Drops.OutOfOrder + q.Reordered }},
	{"rcvd_rnr_err", func(_ *verbs.Stats, q *verbs.QPStats) uint64 { return q.RNRReceived }},
	{"send_rnr_err", func(_ *verbs.Stats, q *verbs.QPStats) uint64 { return q.RNRSent }},
	{"rcvd_seq_err", func(_ *verbs.Stats, q *verbs.QPStats) uint64 { return q.NAKSeqReceived }},
	{"ack_deferred", func(_ *verbs.Stats, q *verbs.QPStats) uint64 { return q.AcksMerged }},
	{"completer_retry_err", func(_ *verbs.Stats, q *verbs.QPStats) uint64 { return q.Restarts + q.Timeouts + q.Probes }},
	{"retry_exceeded_err", nil},
	{"retry_rnr_exceeded_err", nil},
	{"send_err", func(s *verbs.Stats, _ *verbs.QPStats) uint64 { return s.Link.TxErrors }},
	{"link_downed", nil},
	{"rdma_sends", func(_ *verbs.Stats, q *verbs.QPStats) uint64 { return q.SendDone }},
	{"rdma_recvs", func(_ *verbs.Stats, q *verbs.QPStats) uint64 { return q.RecvDone }},
}

// Readers are looked after for a while: files that change are written again in
// this rhythm until none was read for the time of watchFor.
const (
	refreshEvery = time.Second
	watchFor     = time.Minute
)

// eyes tell that a program reads files that change.
type eyes struct {
	file *os.File // inotify
}

func openEyes() (*eyes, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	return &eyes{os.NewFile(uintptr(fd), "inotify")}, nil
}

// look adds a folder.
func (e *eyes) look(folder string) error {
	raw, err := e.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		_, failed = unix.InotifyAddWatch(int(fd), folder, unix.IN_ACCESS|unix.IN_ONLYDIR)
	})
	return errors.Join(err, os.NewSyscallError("inotify_add_watch", failed))
}

// wait returns when a program has read, or an error when the eyes are closed.
func (e *eyes) wait(b []byte) error {
	_, err := e.file.Read(b)
	return err
}

// seen reports whether a program has read since the last call.
func (e *eyes) seen(b []byte) bool {
	if e.file.SetReadDeadline(time.Now()) != nil {
		return false // closed
	}
	_, err := e.file.Read(b)
	_ = e.file.SetReadDeadline(time.Time{}) // as above
	return err == nil
}

func (e *eyes) close() error { return e.file.Close() }

// watch has files of a device be written again while programs read them. The
// host is locked.
func (h *Host) watch(name string) {
	if h.eyes == nil {
		e, err := openEyes()
		if err != nil {
			h.log.Warn("counters for programs are written once: the system does not tell that they are read", "error", err)
			return
		}
		h.eyes = e
		h.wg.Go(h.attend)
	}
	for _, folder := range []string{"ports/1", "ports/1/hw_counters"} {
		if err := h.eyes.look(h.tree.path("sys/class/infiniband", name, folder)); err != nil {
			h.log.Warn("counters for programs are written once", "folder", folder, "error", err)
		}
	}
}

// attend writes files again while programs read them.
func (h *Host) attend() {
	events := make([]byte, 64<<10)
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	for h.eyes.wait(events) == nil {
		for until := time.Now().Add(watchFor); time.Now().Before(until); {
			h.refresh()
			select {
			case <-tick.C:
			case <-h.done:
				return
			}
			if h.eyes.seen(events) {
				until = time.Now().Add(watchFor)
			}
		}
	}
}

// refresh brings what changes in the tree up to date.
func (h *Host) refresh() {
	h.refreshing.Lock()
	defer h.refreshing.Unlock()
	h.mu.Lock()
	devices := h.devices
	if h.closed {
		devices = nil
	}
	h.mu.Unlock()
	for _, d := range devices {
		files := portFiles(d.QueryPort())
		for name, v := range d.counters() {
			files["ports/1/hw_counters/"+name] = strconv.FormatUint(v, 10)
		}
		for name, text := range files {
			if d.files[name] == text {
				delete(files, name) // to read the file would look like a program's doing so
			}
		}
		if err := h.tree.write("sys/class/infiniband/"+d.name, files); err != nil {
			h.log.Warn("write counters for programs", "device", d.name, "error", err)
			continue
		}
		if d.files == nil {
			d.files = map[string]string{}
		}
		maps.Copy(d.files, files)
	}
}

// counters are those of the device: packets are sums over all leases, also
// those that have ended, and the others are of this process.
func (d *device) counters() map[string]uint64 {
	stats, qps := d.Stats(), d.QPStats()
	p := d.describe()
	for i := range p.Leases {
		p.Past.Add(&p.Leases[i])
	}
	stats.Link.TxPackets, stats.Link.RxPackets = p.Past.TxPackets, p.Past.RxPackets
	// A lease that has just ended may be in both.
	d.tx, d.rx = max(d.tx, stats.Link.TxPackets), max(d.rx, stats.Link.RxPackets)
	stats.Link.TxPackets, stats.Link.RxPackets = d.tx, d.rx
	list := map[string]uint64{}
	for _, c := range hardwareCounters {
		if c.value != nil {
			list[c.name] = c.value(&stats, &qps)
		}
	}
	return list
}

// portFiles are the files that say how a port is now.
func portFiles(p verbs.PortAttr) map[string]string {
	files := map[string]string{"ports/1/rate": rateText(uverbs.Rate(p.Interface, p.Speed)), "ports/1/state": stateDown, "ports/1/phys_state": physDisabled}
	if p.State == verbs.PortActive {
		files["ports/1/state"] = stateActive
	}
	switch p.PhysState {
	case verbs.PhysPolling:
		files["ports/1/phys_state"] = physPolling
	case verbs.PhysLinkUp:
		files["ports/1/phys_state"] = physLinkUp
	}
	return files
}
