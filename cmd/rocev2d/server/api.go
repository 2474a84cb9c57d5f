package server

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/verbs"
)

// addAPI adds the JSON interface. docs/operations.md describes it.
func (h *handlers) addAPI(mux *http.ServeMux) {
	pages := []string{"offset", "limit"} // parameters of those that have pages
	parameters := map[string][]string{"regions": pages, "connections": pages, "leases": pages, "peers": pages, "errors": pages,
		"qps": append([]string{"device", "state", "find"}, pages...)}
	for path, f := range map[string]func(*http.Request) (any, error){
		"status":      h.apiStatus,
		"devices":     h.apiDevices,
		"qps":         h.apiQPs,
		"regions":     func(r *http.Request) (any, error) { return paged(r, h.exports.list()) },
		"connections": h.apiConnections,
		"leases":      h.apiLeases,
		"peers":       h.apiPeers,
		"targets":     func(*http.Request) (any, error) { return page(h.targets.states(), 0, 1<<10), nil },
		"errors":      h.apiErrors,
		"counters":    h.apiCounters,
		"config":      h.apiConfig,
		"capture":     func(*http.Request) (any, error) { return h.recorder.state(), nil },
	} {
		mux.HandleFunc("GET /api/v1/"+path, func(w http.ResponseWriter, r *http.Request) {
			err := knownParameters(r, path, parameters[path])
			var v any
			if err == nil {
				v, err = f(r)
			}
			if err != nil {
				refuse(w, http.StatusBadRequest, "%s", clip(err.Error()))
				return
			}
			answer(w, http.StatusOK, v)
		})
	}
	mux.HandleFunc("POST /api/v1/capture/start", h.captureStart)
	mux.HandleFunc("POST /api/v1/capture/stop", h.captureStop)
	mux.HandleFunc("GET /api/v1/capture/download", long(h.captureDownload))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "there is no %s %s", r.Method, clip(r.URL.Path))
	})
}

func (h *handlers) apiStatus(*http.Request) (any, error) {
	type deviceStatus struct {
		Address string `json:"address"`
		State   string `json:"state"`
		QPs     int    `json:"qps"`
		MRs     int    `json:"mrs"`
	}
	host, _ := os.Hostname() // for the title of the page
	v := struct {
		Version  string         `json:"version"`
		Host     string         `json:"host"`
		PID      int            `json:"pid"`
		Started  time.Time      `json:"started"`
		Ready    bool           `json:"ready"`
		Draining bool           `json:"draining"`
		Clients  int            `json:"clients"`
		Errors   uint64         `json:"errors"`
		Devices  []deviceStatus `json:"devices"`
	}{Version: h.version, Host: host, PID: os.Getpid(), Started: h.begin, Ready: h.unready() == "", Draining: h.records.draining.Load(), Clients: h.records.visits.size()}
	_, v.Errors = h.records.problems.latest()
	for _, d := range h.devices {
		st := d.dev.Stats()
		v.Devices = append(v.Devices, deviceStatus{d.addr(), d.dev.QueryPort().State.String(), st.QPs, st.MRs})
	}
	return v, nil
}

func (h *handlers) apiDevices(*http.Request) (any, error) {
	type deviceInfo struct {
		Address     string         `json:"address"`
		GID         string         `json:"gid"`
		NodeGUID    string         `json:"node_guid"`
		Interface   string         `json:"interface"`
		State       string         `json:"state"`
		PhysState   string         `json:"phys_state"`
		DownReason  string         `json:"down_reason,omitempty"`
		ActiveMTU   int            `json:"active_mtu"`
		LinkMTU     int            `json:"link_mtu"`
		SpeedMbps   int            `json:"speed_mbps,omitempty"`
		UDPPort     int            `json:"udp_port"`
		Shards      int            `json:"shards"`
		RecvBuffer  int            `json:"receive_buffer"`
		SendBuffer  int            `json:"send_buffer"`
		Offloads    []string       `json:"offloads"`
		Shm         bool           `json:"shared_memory"`
		ShmPeers    []netip.Addr   `json:"shared_memory_peers,omitempty"` // with which packets pass so at the moment
		Congestion  string         `json:"congestion"`
		RegionsPort int            `json:"regions_port,omitempty"`
		QPs         int            `json:"qps"`
		MRs         int            `json:"mrs"`
		States      map[string]int `json:"states"`
	}
	var list []deviceInfo
	for _, d := range h.devices {
		p, a, st := d.dev.QueryPort(), d.dev.Query(), d.dev.Stats()
		i := deviceInfo{
			Address: d.addr(), GID: netip.AddrFrom16(d.dev.GIDs()[0].Bytes()).String(), NodeGUID: fmt.Sprintf("%016x", a.NodeGUID), Interface: p.Interface,
			State: p.State.String(), PhysState: p.PhysState.String(), DownReason: p.DownReason,
			ActiveMTU: p.ActiveMTU.Bytes(), LinkMTU: p.LinkMTU, SpeedMbps: p.Speed, UDPPort: p.UDPPort, Shards: a.CompletionVectors,
			RecvBuffer: p.RecvBuffer, SendBuffer: p.SendBuffer, Offloads: []string{}, RegionsPort: d.cfg.Regions,
			Congestion: cmp.Or(d.cfg.Congestion, "window"), Shm: d.cfg.Shm, ShmPeers: d.dev.SharedPeers(),
			QPs: st.QPs, MRs: st.MRs, States: map[string]int{},
		}
		for name, on := range map[string]bool{"GSO": p.SegmentOffload, "GRO": p.ReceiveOffload, "ECN": p.ECN, "full ICRC": p.FullICRC} {
			if on {
				i.Offloads = append(i.Offloads, name)
			}
		}
		slices.Sort(i.Offloads)
		for state, n := range d.dev.QPStates() {
			i.States[state.String()] = n
		}
		list = append(list, i)
	}
	return page(list, 0, len(list)), nil
}

// qpInfo is a queue pair in a list.
type qpInfo struct {
	Device      string `json:"device"`
	QPN         uint32 `json:"qpn"`
	Type        string `json:"type"`
	State       string `json:"state"`
	Peer        string `json:"peer,omitempty"`
	PeerQPN     uint32 `json:"peer_qpn,omitempty"`
	SendPSN     uint32 `json:"send_psn"`    // the next to be sent
	OldestPSN   uint32 `json:"oldest_psn"`  // the oldest that is not acknowledged
	ExpectedPSN uint32 `json:"receive_psn"` // the next that is expected
	MTU         int    `json:"mtu,omitempty"`
	Queued      int    `json:"queued"`
	InFlight    int    `json:"in_flight"`
	Window      int    `json:"window"`
	Rate        uint64 `json:"rate,omitempty"` // bits per second, where one bounds it
	RTTMicros   int64  `json:"rtt_us,omitempty"`
	TxPackets   uint64 `json:"tx_packets"`
	RxPackets   uint64 `json:"rx_packets"`
	TxBytes     uint64 `json:"tx_bytes"`
	RxBytes     uint64 `json:"rx_bytes"`
	Retransmits uint64 `json:"retransmits"`
	Drops       uint64 `json:"drops"`
}

func infoOf(device string, q *verbs.QP) qpInfo {
	a, st, f := q.Query(), q.Stats(), q.Flow()
	i := qpInfo{
		Device: device, QPN: uint32(q.QPN()), Type: q.Type().String(), State: a.State.String(),
		SendPSN: uint32(a.SQPSN), OldestPSN: uint32(f.OldestPSN), ExpectedPSN: uint32(a.RQPSN),
		Queued: f.Queued, InFlight: f.InFlight, Window: f.Window, Rate: f.Rate, RTTMicros: f.RTT.Microseconds(),
		TxPackets: st.TxPackets, RxPackets: st.RxPackets, TxBytes: st.TxBytes, RxBytes: st.RxBytes,
		Retransmits: st.Retransmits, Drops: st.Drops.Total(),
	}
	if a.AV.DGID.IsValid() {
		i.Peer, i.PeerQPN, i.MTU = a.AV.DGID.String(), uint32(a.DestQPN), a.PathMTU.Bytes()
	}
	return i
}

// apiQPs lists the queue pairs of all devices, or of device=; state= chooses
// those in a state, and find= those whose number or peer has a text in it. Then
// every queue pair is looked at, else only those of the page.
func (h *handlers) apiQPs(r *http.Request) (any, error) {
	offset, limit, err := window(r)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	state, find := strings.ToUpper(q.Get("state")), strings.ToLower(q.Get("find"))
	if state != "" && !slices.Contains(qpStates, state) {
		return nil, fmt.Errorf("state=%s: there are %s", clip(state), strings.Join(qpStates, ", "))
	}
	devices, err := h.devicesNamed(q.Get("device"))
	if err != nil {
		return nil, err
	}
	p := Page[qpInfo]{Offset: offset, Items: []qpInfo{}}
	for _, d := range devices {
		numbers := d.dev.QPNs()
		if state == "" && find == "" {
			from := min(max(offset-p.Total, 0), len(numbers))
			p.Total += len(numbers)
			numbers = numbers[from:min(from+limit-len(p.Items), len(numbers))]
		}
		for _, n := range numbers {
			qp := d.dev.QP(n)
			if qp == nil || state != "" && qp.State().String() != state {
				continue
			}
			if state == "" && find == "" {
				p.Items = append(p.Items, infoOf(d.addr(), qp))
				continue
			}
			if find != "" && !found(qp, find) {
				continue
			}
			if p.Total++; p.Total > offset && len(p.Items) < limit {
				p.Items = append(p.Items, infoOf(d.addr(), qp))
			}
		}
	}
	p.Offset = min(p.Offset, p.Total)
	return p, nil
}

// qpStates are the names of the states of queue pairs.
var qpStates = func() (names []string) {
	for _, s := range []verbs.State{verbs.StateReset, verbs.StateInit, verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateSQE, verbs.StateErr} {
		names = append(names, s.String())
	}
	return names
}()

// found reports whether a queue pair has a text in its number or its peer.
func found(q *verbs.QP, text string) bool {
	n := uint32(q.QPN())
	a := q.Query()
	return strings.Contains(fmt.Sprintf("0x%06x %d", n, n), text) ||
		a.AV.DGID.IsValid() && strings.Contains(a.AV.DGID.String(), text) ||
		a.DestQPN != 0 && strings.Contains(fmt.Sprintf("0x%06x", uint32(a.DestQPN)), text)
}

func (h *handlers) apiConnections(r *http.Request) (any, error) {
	return paged(r, h.records.visits.all())
}

func (h *handlers) apiPeers(r *http.Request) (any, error) { return paged(r, h.records.visits.over()) }

func (h *handlers) apiErrors(r *http.Request) (any, error) {
	list, _ := h.records.problems.latest()
	return paged(r, list)
}

// apiConfig shows the configuration without its secrets.
func (h *handlers) apiConfig(*http.Request) (any, error) {
	c := *h.config()
	if c.Admin.Token != "" {
		c.Admin.Token = "(set)"
	}
	return struct {
		File string         `json:"file"`
		Now  *config.Config `json:"config"`
	}{c.File, &c}, nil
}

// leaseInfo is a lease in the JSON interface.
type leaseInfo struct {
	Device      string    `json:"device"`
	Process     int       `json:"process"` // 0 if the daemon does not see it
	User        uint32    `json:"user"`
	Command     string    `json:"command"`
	Own         bool      `json:"own"` // the daemon's
	Slot        int       `json:"slot"`
	Slots       int       `json:"slots"`
	Since       time.Time `json:"since"`
	QueuePairs  int       `json:"queue_pairs"`
	Connections int       `json:"connections"`
	TxPackets   uint64    `json:"tx_packets"`
	RxPackets   uint64    `json:"rx_packets"`
	TxBytes     uint64    `json:"tx_bytes"`
	RxBytes     uint64    `json:"rx_bytes"`
	TxShm       uint64    `json:"tx_shm_bytes"` // of tx_bytes, through shared memory
	RxShm       uint64    `json:"rx_shm_bytes"`
	Made        uint64    `json:"queue_pairs_made"` // since the beginning
	// Reached are peers that queue pairs were connected to: the first ones.
	Reached  []owner.Peer `json:"reached"`
	Work     owner.Work   `json:"work"`
	Peers    []string     `json:"peers"` // the first ones
	Services []string     `json:"services"`
}

// maxLeasePeers bounds the peers and services of a lease that are listed.
const maxLeasePeers = 32

func (h *handlers) apiLeases(r *http.Request) (any, error) {
	list := []leaseInfo{}
	for _, d := range h.devices {
		if d.port == nil {
			continue
		}
		for _, l := range d.port.Leases() {
			info := leaseInfo{Device: d.addr(), Process: l.PID, User: l.UID, Command: clip(l.Command), Own: l.PID == os.Getpid(),
				Slot: l.Slot, Slots: l.Slots, Since: l.Since, QueuePairs: l.QPs, Connections: l.Connections,
				TxPackets: l.TxPackets, RxPackets: l.RxPackets, TxBytes: l.TxBytes, RxBytes: l.RxBytes,
				TxShm: l.TxShm, RxShm: l.RxShm, Made: l.MadeQPs, Reached: append([]owner.Peer{}, l.Reached...), Work: l.Work, Peers: []string{}, Services: []string{}}
			for _, p := range l.Peers[:min(len(l.Peers), maxLeasePeers)] {
				info.Peers = append(info.Peers, p.String())
			}
			for _, id := range l.Services[:min(len(l.Services), maxLeasePeers)] {
				info.Services = append(info.Services, fmt.Sprintf("%#016x", id))
			}
			list = append(list, info)
		}
	}
	return paged(r, list)
}
