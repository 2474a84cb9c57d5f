package server

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/transport/owner"
)

// addAPI adds the JSON interface. docs/operations.md describes it.
func (h *handlers) addAPI(mux *http.ServeMux) {
	pages := []string{"offset", "limit", "sort"} // parameters of those that have pages
	parameters := map[string][]string{"regions": pages, "connections": pages, "leases": pages, "peers": pages, "errors": pages,
		"qps": append([]string{"device", "state", "find"}, pages...)}
	for path, f := range map[string]func(*http.Request) (any, error){
		"status":      h.apiStatus,
		"devices":     h.apiDevices,
		"qps":         func(r *http.Request) (any, error) { return h.queuePairs(r.URL.Query()) },
		"regions":     func(r *http.Request) (any, error) { return paged(r.URL.Query(), h.exports.list()) },
		"connections": func(r *http.Request) (any, error) { return paged(r.URL.Query(), h.records.visits.all()) },
		"leases":      func(r *http.Request) (any, error) { return paged(r.URL.Query(), h.leases()) },
		"peers":       func(r *http.Request) (any, error) { return paged(r.URL.Query(), h.records.visits.over()) },
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
		Secured     *securedInfo   `json:"secured,omitempty"`
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
			QPs: st.QPs, MRs: st.MRs, States: map[string]int{}, Secured: d.secured(),
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

func (h *handlers) apiErrors(r *http.Request) (any, error) {
	list, _ := h.records.problems.latest()
	return paged(r.URL.Query(), list)
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

	Guard map[string]uint64 `json:"guard,omitempty"` // where the port is secured
}

// maxLeasePeers bounds the peers and services of a lease that are listed.
const maxLeasePeers = 32

// leases returns the leases of all devices.
func (h *handlers) leases() []leaseInfo {
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
			if l.Guard != nil {
				info.Guard = map[string]uint64{}
				l.Guard.Each(func(name string, v uint64) { info.Guard[name] = v })
			}
			for _, p := range l.Peers[:min(len(l.Peers), maxLeasePeers)] {
				info.Peers = append(info.Peers, p.String())
			}
			for _, id := range l.Services[:min(len(l.Services), maxLeasePeers)] {
				info.Services = append(info.Services, fmt.Sprintf("%#016x", id))
			}
			list = append(list, info)
		}
	}
	return list
}
