package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/owner"
)

// useReport says which transport a program has used.
type useReport struct {
	Program   string          `json:"program"`
	RDMA      rdmaUse         `json:"rdma"`
	Summary   string          `json:"summary"`
	Processes []processUse    `json:"processes"`
	Unknown   []unknownDevice `json:"unknown,omitempty"` // devices whose use is not known
}

// rdmaUse is whether RDMA was used.
type rdmaUse string

const (
	rdmaUsed     rdmaUse = "used"      // bytes were sent or received over verbs
	rdmaInside   rdmaUse = "inside"    // bytes stayed inside a device: both ends were of one process
	rdmaUnused   rdmaUse = "unused"    // devices were opened, and nothing passed
	rdmaNoDevice rdmaUse = "no device" // no device was opened
	rdmaUnknown  rdmaUse = "unknown"
)

// unknownDevice is a device whose leases are not known.
type unknownDevice struct {
	Device  string     `json:"device"` // "": all, because the daemon has ended
	Address netip.Addr `json:"address"`
	Reason  string     `json:"reason"`
}

// processUse is what a process has done on a device.
type processUse struct {
	PID     int        `json:"pid"` // 0: it is not visible to the daemon
	UID     uint32     `json:"uid"`
	Command string     `json:"command"`
	Device  string     `json:"device"`
	Address netip.Addr `json:"address"`
	State   useState   `json:"state"`

	Sent     traffic `json:"sent"`
	Received traffic `json:"received"`
	Inside   traffic `json:"inside"` // the device, between queue pairs of the process

	QPsMade     uint64                     `json:"qps_made"`
	QPsOpen     int                        `json:"qps_open"`
	Types       []transport.UsedType       `json:"qp_types"`  // of QPsMade
	Requests    []transport.UsedOperation  `json:"requests"`  // send requests that were accepted; of Go programs they are not counted
	Connected   []transport.UsedConnection `json:"connected"` // queue pairs, the first ones
	Peers       []transport.UsedPeer       `json:"peers"`     // the first ones
	Connections int                        `json:"cm_connections"`
	Others      []netip.Addr               `json:"cm_peers"` // of connections
}

// useState says how far the counters of a process are to be relied on.
type useState string

const (
	useEnded   useState = "ended"   // they are complete
	useKilled  useState = "killed"  // they are from up to a quarter of a second before its end
	useRunning useState = "running" // it goes on
	useSilent  useState = "silent"  // it has told none
)

// traffic is what has passed one way, BTH to ICRC.
type traffic struct {
	Bytes   uint64 `json:"bytes"`
	Packets uint64 `json:"packets"`
	Shm     uint64 `json:"shm_bytes"` // of Bytes, through shared memory
}

// add adds a lease.
func (r *useReport) add(u *programs.Used) {
	l := &u.Lease
	p := processUse{
		PID: l.PID, UID: l.UID, Command: cmp.Or(l.Command, "?"), Device: u.Device, Address: u.Addr, State: useRunning,
		Sent:     traffic{l.TxBytes, l.TxPackets, l.TxShm},
		Received: traffic{l.RxBytes, l.RxPackets, l.RxShm},
		Inside:   traffic{Bytes: l.Work.LoopBytes, Packets: l.Work.LoopPackets},
		QPsMade:  l.MadeQPs, QPsOpen: l.QPs, Types: list(l.Work.Types), Requests: list(l.Work.Requests), Connected: list(l.Work.Connections),
		Peers: list(l.Reached), Connections: l.Connections, Others: list(l.Peers),
	}
	switch {
	case !l.Told:
		p.State = useSilent
	case u.Ended && l.Last:
		p.State = useEnded
	case u.Ended:
		p.State = useKilled
	}
	if u.Ended { // what it had open is closed
		p.QPsOpen, p.Connections = 0, 0
	}
	r.Processes = append(r.Processes, p)
}

// list is a list that JSON shows as one, also where it is empty.
func list[T any](l []T) []T { return append([]T{}, l...) }

// judge says in a sentence whether RDMA was used.
func (r *useReport) judge() {
	var sent, received, inside, qps uint64
	silent := 0
	for i := range r.Processes {
		p := &r.Processes[i]
		sent, received, inside, qps = sent+p.Sent.Bytes, received+p.Received.Bytes, inside+p.Inside.Bytes, qps+p.QPsMade
		if p.State == useSilent {
			silent++
		}
	}
	processes := strconv.Itoa(len(r.Processes)) + " processes"
	if len(r.Processes) == 1 {
		processes = "1 process"
	}
	switch {
	case sent > 0 || received > 0:
		r.RDMA = rdmaUsed
		r.Summary = fmt.Sprintf("%s used RDMA: %s sent %s and received %s over verbs, with %s", r.Program, processes, amount(sent, "byte"), amount(received, "byte"), amount(qps, "queue pair"))
	case silent > 0:
		r.RDMA = rdmaUnknown
		r.Summary = fmt.Sprintf("%s opened a device; whether it used RDMA is not known: %d of %s ended soon, by _exit or a signal, and told nothing", r.Program, silent, processes)
	case len(r.Unknown) > 0:
		r.RDMA = rdmaUnknown
		r.Summary = fmt.Sprintf("whether %s used RDMA is not known: %s", r.Program, r.Unknown[0].Reason)
	case inside > 0:
		r.RDMA = rdmaInside
		r.Summary = fmt.Sprintf("%s used RDMA inside one process only: %s passed between queue pairs of the same device, and no packet passed the network", r.Program, amount(inside, "byte"))
	case len(r.Processes) > 0:
		r.RDMA = rdmaUnused
		r.Summary = fmt.Sprintf("%s did not use RDMA: it opened devices, and no packet passed the network. Whatever data it exchanged went over another transport", r.Program)
	default:
		r.RDMA = rdmaNoDevice
		r.Summary = r.Program + " has used no device of rocev2: no process of it has opened one, so it did not use RDMA"
	}
}

// text is the report for people.
func (r *useReport) text() string {
	var b strings.Builder
	for i := range r.Processes {
		r.Processes[i].text(&b)
	}
	for _, u := range r.Unknown {
		if u.Device == "" {
			fmt.Fprintf(&b, "rocev2 run: the daemon has ended, and what was done after it told last is not known: %s\n", u.Reason)
			continue
		}
		fmt.Fprintf(&b, "rocev2 run: what has used %s (%v) is not known: %s\n", u.Device, u.Address, u.Reason)
	}
	fmt.Fprintf(&b, "rocev2 run: %s.\n", r.Summary)
	if r.RDMA == rdmaNoDevice {
		b.WriteString("It uses another transport, or its libraries have no support for verbs; rocev2 run -- ibv_devinfo shows the devices.\n")
	}
	return b.String()
}

func (p *processUse) text(b *strings.Builder) {
	pid := "process " + strconv.Itoa(p.PID)
	if p.PID == 0 {
		pid = "a process that is not visible here"
	}
	fmt.Fprintf(b, "rocev2 run: %s, %s, user %d, on %s (%v)", p.Command, pid, p.UID, p.Device, p.Address)
	switch p.State {
	case useSilent:
		b.WriteString("\n  what it sent and received is not known: it ended soon, by _exit or a signal, and told nothing\n")
		return
	case useKilled:
		b.WriteString(", killed: what it did in its last quarter of a second may be missing")
	case useRunning:
		b.WriteString(", which still runs")
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(b, "\n  %-9s "+format, append([]any{name}, args...)...)
	}
	line("sent", "%s", p.Sent.text())
	line("received", "%s", p.Received.text())
	if p.Inside.Packets > 0 {
		line("inside", "%s in %s, between its own queue pairs", amount(p.Inside.Bytes, "byte"), amount(p.Inside.Packets, "packet"))
	}
	line("made", "%s%s", amount(p.QPsMade, "queue pair"), typesText(p.Types))
	if p.QPsOpen > 0 || p.Connections > 0 {
		fmt.Fprintf(b, "; open: %s, %s", amount(uint64(p.QPsOpen), "queue pair"), amount(uint64(p.Connections), "connection"))
	}
	if len(p.Requests) > 0 {
		line("posted", "%s", requestsText(p.Requests))
	}
	if len(p.Connected) > 0 {
		line("connected", "%s", connectedText(p.Connected, p.QPsMade))
	}
	if text := peersText(p.Peers, p.Others, p.Address); text != "" {
		line("peers", "%s", text)
	}
	b.WriteByte('\n')
}

// text says how much passed, and how: through UDP, or through shared memory.
func (t *traffic) text() string {
	text := amount(t.Bytes, "byte") + " in " + amount(t.Packets, "packet")
	switch {
	case t.Bytes == 0:
		return text
	case t.Shm == 0:
		return text + ", by UDP"
	case t.Shm >= t.Bytes:
		return text + ", all through shared memory"
	}
	return text + ", by UDP, and of them " + amount(t.Shm, "byte") + " through shared memory"
}

// typesText says of which types queue pairs are.
func typesText(types []transport.UsedType) string {
	var list []string
	for _, t := range types {
		if len(types) == 1 {
			list = append(list, t.Type)
		} else {
			list = append(list, fmt.Sprintf("%d %s", t.Made, t.Type))
		}
	}
	if list == nil {
		return ""
	}
	return " (" + strings.Join(list, ", ") + ")"
}

func requestsText(requests []transport.UsedOperation) string {
	var list []string
	for _, o := range requests {
		list = append(list, fmt.Sprintf("%d %s of %s", o.Requests, o.Operation, amount(o.Bytes, "byte")))
	}
	return strings.Join(list, "; ")
}

// connectedText lists which queue pairs were connected to which ones. It says
// so if there may be more.
func connectedText(list []transport.UsedConnection, made uint64) string {
	var names []string
	for _, c := range list {
		names = append(names, fmt.Sprintf("%s 0x%06x to 0x%06x of %v", c.Type, c.QPN, c.PeerQPN, c.Peer))
	}
	if len(list) == transport.MostUsedConnections && made > uint64(len(list)) {
		names = append(names, "...")
	}
	return strings.Join(names, ", ")
}

// withoutTries puts leases in order of processes and devices, and takes out
// what a process has opened and closed again unused, where it has opened the
// device once more: libraries do so to see what there is.
func withoutTries(list []programs.Used) []programs.Used {
	slices.SortStableFunc(list, func(a, b programs.Used) int {
		return cmp.Or(cmp.Compare(a.Lease.PID, b.Lease.PID), strings.Compare(a.Device, b.Device))
	})
	same := func(a, b programs.Used) bool { return a.Lease.PID == b.Lease.PID && a.Device == b.Device }
	return slices.DeleteFunc(slices.Clone(list), func(u programs.Used) bool {
		n := 0
		for _, v := range list {
			if same(u, v) && used(v.Lease) {
				n++
			}
		}
		return n > 0 && !used(u.Lease)
	})
}

// used reports whether something may have been done with a lease.
func used(l owner.Lease) bool {
	return !l.Told || l.MadeQPs > 0 || l.TxPackets > 0 || l.RxPackets > 0 || l.Connections > 0
}

// peersText lists the peers of queue pairs, and those of connections that had
// no queue pair here. It says which are known to be this software.
func peersText(reached []transport.UsedPeer, others []netip.Addr, own netip.Addr) string {
	peers := slices.Clone(reached)
	for _, a := range others {
		if !slices.ContainsFunc(peers, func(p transport.UsedPeer) bool { return p.Addr == a.Unmap() }) {
			peers = append(peers, transport.UsedPeer{Addr: a})
		}
	}
	var names []string
	for _, p := range peers {
		name := p.Addr.String()
		if p.Addr.Unmap() == own.Unmap() {
			name += " (this address)"
		}
		if p.Native {
			name += " (rocev2)"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// amount is a number with what it counts.
func amount(n uint64, unit string) string {
	if n != 1 {
		unit += "s"
	}
	return strconv.FormatUint(n, 10) + " " + unit
}
