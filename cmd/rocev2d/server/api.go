package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/transport/tap"
	"github.com/gosoftroce/rocev2/verbs"
)

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}

// refuse answers with an error, as JSON.
func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	answer(w, status, struct {
		Error string `json:"error"`
	}{fmt.Sprintf(format, args...)})
}

// api adds the JSON interface. docs/operations.md describes it.
func (s *Server) api(mux *http.ServeMux) {
	pages := []string{"offset", "limit"} // parameters of those that have pages
	parameters := map[string][]string{"regions": pages, "connections": pages, "leases": pages, "peers": pages, "errors": pages,
		"qps": append([]string{"device", "state", "find"}, pages...)}
	for path, f := range map[string]func(*http.Request) (any, error){
		"status":      s.apiStatus,
		"devices":     s.apiDevices,
		"qps":         s.apiQPs,
		"regions":     s.apiRegions,
		"connections": s.apiConnections,
		"leases":      func(r *http.Request) (any, error) { return apiLeases(r, s.devices) },
		"peers":       s.apiPeers,
		"targets":     func(*http.Request) (any, error) { return page(s.targets.states(), 0, 1<<10), nil },
		"errors":      s.apiErrors,
		"counters":    s.apiCounters,
		"config":      s.apiConfig,
		"capture":     func(*http.Request) (any, error) { return s.recorder.state(), nil },
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
	mux.HandleFunc("POST /api/v1/capture/start", s.captureStart)
	mux.HandleFunc("POST /api/v1/capture/stop", s.captureStop)
	mux.HandleFunc("GET /api/v1/capture/download", long(s.captureDownload))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "there is no %s %s", r.Method, clip(r.URL.Path))
	})
}

// Health answers as long as the process does.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	io.WriteString(w, "ok\n")
}

// readiness answers 200 when clients are served, and else why not.
func (s *Server) readiness(w http.ResponseWriter, _ *http.Request) {
	if why := s.unready(); why != "" {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "ready\n")
}

// unready says why clients are not served; "" if they are: the devices are
// open, their ports active, and the daemon does not drain.
func (s *Server) unready() string {
	switch {
	case s.drain.Load():
		return "draining"
	case !s.ready.Load():
		return "starting"
	}
	for _, d := range s.devices {
		if p := d.dev.QueryPort(); p.State != verbs.PortActive {
			return "device " + d.addr() + ": " + p.DownReason
		}
	}
	return ""
}

// Page is a part of a list.
type Page[T any] struct {
	Total  int `json:"total"`  // entries of the whole list
	Offset int `json:"offset"` // of the first one here
	Items  []T `json:"items"`
}

const (
	defaultLimit = 100
	maxLimit     = 1000
)

func page[T any](list []T, offset, limit int) Page[T] {
	p := Page[T]{Total: len(list), Offset: min(offset, len(list))}
	p.Items = append([]T{}, list[p.Offset:min(p.Offset+limit, len(list))]...)
	return p
}

// knownParameters returns an error for a parameter that a path has not, or that
// is there twice.
func knownParameters(r *http.Request, path string, known []string) error {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fmt.Errorf("the parameters cannot be read: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		switch {
		case len(known) == 0:
			return fmt.Errorf("%s has no parameters, and there is %q", path, clip(name))
		case !slices.Contains(known, name):
			return fmt.Errorf("%s has no parameter %q: there are %s", path, clip(name), strings.Join(known, ", "))
		case len(q[name]) > 1:
			return fmt.Errorf("the parameter %s is there %d times", name, len(q[name]))
		}
	}
	return nil
}

// window reads offset and limit of a request. An offset may lie past the end
// of a list, however large it is, and a limit above what there is.
func window(r *http.Request) (offset, limit int, err error) {
	limit = defaultLimit
	for name, to := range map[string]*int{"offset": &offset, "limit": &limit} {
		v := r.URL.Query().Get(name)
		if v == "" {
			continue
		}
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0, 0, fmt.Errorf("%s=%s: it must be a whole number that is not negative", name, clip(v))
		}
		*to = int(min(n, math.MaxInt))
	}
	return offset, min(limit, maxLimit), nil
}

func paged[T any](r *http.Request, list []T) (any, error) {
	offset, limit, err := window(r)
	if err != nil {
		return nil, err
	}
	return page(list, offset, limit), nil
}

func (s *Server) apiStatus(*http.Request) (any, error) {
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
	}{Version: s.options.Version, Host: host, PID: os.Getpid(), Started: s.begin, Ready: s.unready() == "", Draining: s.drain.Load(), Clients: s.visits.size()}
	_, v.Errors = s.problems.latest()
	for _, d := range s.devices {
		st := d.dev.Stats()
		v.Devices = append(v.Devices, deviceStatus{d.addr(), d.dev.QueryPort().State.String(), st.QPs, st.MRs})
	}
	return v, nil
}

func (s *Server) apiDevices(*http.Request) (any, error) {
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
	for _, d := range s.devices {
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
func (s *Server) apiQPs(r *http.Request) (any, error) {
	offset, limit, err := window(r)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	state, find := strings.ToUpper(q.Get("state")), strings.ToLower(q.Get("find"))
	if state != "" && !slices.Contains(qpStates, state) {
		return nil, fmt.Errorf("state=%s: there are %s", clip(state), strings.Join(qpStates, ", "))
	}
	devices, err := s.devicesNamed(q.Get("device"))
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

// devicesNamed returns the device of an address, or as the configuration calls
// it; without a name all.
func (s *Server) devicesNamed(name string) (list []*device, err error) {
	for _, d := range s.devices {
		if name == "" || name == d.addr() || name == d.cfg.Address {
			list = append(list, d)
		}
	}
	if list == nil {
		return nil, fmt.Errorf("there is no device %q", clip(name))
	}
	return list, nil
}

// found reports whether a queue pair has a text in its number or its peer.
func found(q *verbs.QP, text string) bool {
	n := uint32(q.QPN())
	a := q.Query()
	return strings.Contains(fmt.Sprintf("0x%06x %d", n, n), text) ||
		a.AV.DGID.IsValid() && strings.Contains(a.AV.DGID.String(), text) ||
		a.DestQPN != 0 && strings.Contains(fmt.Sprintf("0x%06x", uint32(a.DestQPN)), text)
}

func (s *Server) apiConnections(r *http.Request) (any, error) {
	return paged(r, s.visits.all())
}

func (s *Server) apiPeers(r *http.Request) (any, error) { return paged(r, s.visits.over()) }

func (s *Server) apiErrors(r *http.Request) (any, error) {
	list, _ := s.problems.latest()
	return paged(r, list)
}

// apiConfig shows the configuration without its secrets.
func (s *Server) apiConfig(*http.Request) (any, error) {
	c := *s.Config()
	if c.Admin.Token != "" {
		c.Admin.Token = "(set)"
	}
	return struct {
		File string         `json:"file"`
		Now  *config.Config `json:"config"`
	}{c.File, &c}, nil
}

// captureStart begins a recording.
func (s *Server) captureStart(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Device string `json:"device"`
		Filter string `json:"filter"`
		Bytes  int    `json:"bytes"`
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(&ask)
	if err == nil && d.More() {
		err = errors.New("something comes after it")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		refuse(w, http.StatusBadRequest, "the body is not what is expected, such as {\"filter\": \"peer=192.0.2.7\"}: %s", clip(err.Error()))
		return
	}
	devices, err := s.devicesNamed(ask.Device)
	if err != nil {
		refuse(w, http.StatusBadRequest, "%s", err.Error())
		return
	}
	var taps []*tap.Switch
	for _, d := range devices {
		taps = append(taps, d.taps...)
	}
	if err := s.recorder.start(time.Now(), taps, ask.Device, ask.Filter, ask.Bytes); err != nil {
		refuse(w, http.StatusBadRequest, "%s", clip(err.Error()))
		return
	}
	answer(w, http.StatusOK, s.recorder.state())
}

func (s *Server) captureStop(w http.ResponseWriter, _ *http.Request) {
	if err := s.recorder.stop(time.Now()); err != nil {
		refuse(w, http.StatusConflict, "%s", err.Error())
		return
	}
	answer(w, http.StatusOK, s.recorder.state())
}

func (s *Server) captureDownload(w http.ResponseWriter, _ *http.Request) {
	if s.recorder.state().Size == 0 {
		refuse(w, http.StatusNotFound, "nothing was recorded yet")
		return
	}
	w.Header().Set("Content-Type", "application/x-pcapng")
	w.Header().Set("Content-Disposition", `attachment; filename="rocev2.pcapng"`)
	if err := s.recorder.writeTo(w); err != nil {
		s.log.Debug("capture download", "error", err)
	}
}
