package programs

import (
	"strconv"
	"time"

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

// lifespan is for how long a counter is as it was: in the file of this name, in
// ms.
const lifespan = 10 * time.Millisecond

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

// refresh brings what changes in the tree up to date: the library asks for that
// before a program opens such a file.
func (h *Host) refresh() {
	h.refreshing.Lock()
	defer h.refreshing.Unlock()
	if time.Since(h.refreshed) < lifespan {
		return
	}
	h.mu.Lock()
	devices := h.devices
	if h.closed {
		devices = nil
	}
	h.mu.Unlock()
	for _, d := range devices {
		stats, qps := d.Stats(), d.QPStats()
		files := portFiles(d.QueryPort())
		for _, c := range hardwareCounters {
			if c.value != nil {
				files["ports/1/hw_counters/"+c.name] = strconv.FormatUint(c.value(&stats, &qps), 10)
			}
		}
		if err := h.tree.write("sys/class/infiniband/"+d.name, files); err != nil {
			h.log.Warn("write counters for programs", "device", d.name, "error", err)
		}
	}
	h.refreshed = time.Now()
}

// portFiles are the files that say how a port is now.
func portFiles(p verbs.PortAttr) map[string]string {
	files := map[string]string{"ports/1/rate": rateText(p.Speed), "ports/1/state": stateDown, "ports/1/phys_state": physDisabled}
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
