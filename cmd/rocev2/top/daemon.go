package top

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// DefaultDaemon is where rocev2d has its page by default.
const DefaultDaemon = "127.0.0.1:14791"

// Daemon is a Source: rocev2d, over its JSON interface.
type Daemon struct {
	base   string // http://127.0.0.1:14791
	token  string
	client *http.Client
}

// NewDaemon is the daemon at an address: HOST, HOST:PORT or a URL. The token is
// that of its configuration, or "".
func NewDaemon(address, token string) (*Daemon, error) {
	base := address
	if !strings.Contains(address, "://") {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			host, port = strings.Trim(address, "[]"), "14791"
		}
		base = "http://" + net.JoinHostPort(host, port)
	}
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the daemon's address %q: %w", address, err)
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", strings.Trim(u.Path, "/") != "", u.RawQuery != "", u.Fragment != "", u.User != nil:
		return nil, fmt.Errorf("the daemon's address %q: it must be HOST, HOST:PORT or http://HOST:PORT", address)
	}
	return &Daemon{u.Scheme + "://" + u.Host, token, &http.Client{
		Timeout:       answerTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect }, // the token is for this host
		Transport:     &http.Transport{MaxIdleConnsPerHost: 1, MaxResponseHeaderBytes: 64 << 10},
	}}, nil
}

var errRedirect = errors.New("it sends elsewhere: it is not rocev2d")

// answerTime is how long the daemon may take for an answer, mostAnswer how long
// that is in bytes.
const (
	answerTime = 5 * time.Second
	mostAnswer = 32 << 20
)

// Queue pairs come in pages of the most that the daemon gives. mostPages of
// them are looked at.
const (
	pageSize  = 1000
	mostPages = 4
)

func (d *Daemon) get(ctx context.Context, path string, into any) error {
	err := d.ask(ctx, path, into)
	if err == nil {
		return nil
	}
	if e := (*url.Error)(nil); errors.As(err, &e) { // its text has the whole URL
		err = e.Err
		switch {
		case e.Timeout():
			err = fmt.Errorf("no answer within %v", answerTime)
		case errors.Is(err, syscall.ECONNREFUSED):
			err = errors.New("nothing listens there: start rocev2d, or name another by --daemon")
		}
	}
	return fmt.Errorf("rocev2d at %s: %w", d.base, err)
}

func (d *Daemon) ask(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.base+"/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	if d.token != "" {
		req.Header.Set("Authorization", "Bearer "+d.token)
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body := io.LimitReader(resp.Body, mostAnswer)
	if resp.StatusCode != http.StatusOK {
		var why struct{ Error string }
		_ = json.NewDecoder(body).Decode(&why) // or the status is all there is
		switch {
		case resp.StatusCode == http.StatusUnauthorized && d.token == "":
			return errors.New("it asks for a token: name its file with --token-file")
		case resp.StatusCode == http.StatusUnauthorized:
			return errors.New("it does not take this token")
		case resp.StatusCode == http.StatusNotFound && why.Error == "":
			return errors.New("there is a server, and it is not rocev2d")
		}
		return errors.New(shown(cmp.Or(why.Error, resp.Status), 300))
	}
	if err := json.NewDecoder(body).Decode(into); err != nil {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("no whole answer within %v", answerTime)
		}
		return fmt.Errorf("its answer is not that of rocev2d: %w", err)
	}
	return nil
}

// items is a list of an answer, of which the first pageSize are kept: more were
// not asked for.
type items[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *items[T]) UnmarshalJSON(b []byte) error {
	*l = nil
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t == nil {
		return err
	} else if t != json.Delim('[') {
		return errors.New("it has no list where one belongs")
	}
	for d.More() && len(*l) < pageSize {
		var v T
		if err := d.Decode(&v); err != nil {
			return err
		}
		*l = append(*l, v)
	}
	return nil
}

// The answers of the daemon, as far as they are used.
type (
	statusAnswer struct {
		Version, Host   string
		PID             int
		Started         string
		Ready, Draining bool
	}
	devicesAnswer struct {
		Items items[struct {
			Address, State, Interface string
			QPs, MRs                  int
			Secured                   *securedAnswer
		}]
	}
	securedAnswer struct {
		Total int
		Hosts items[struct{ Since time.Time }] // those without keys first
	}
	countersAnswer struct {
		Devices items[struct {
			Address  string
			Link     map[string]uint64
			QPs      map[string]uint64
			Drops    map[string]uint64
			Guard    map[string]uint64
			RTT      struct{ Median_us int64 }
			InFlight int `json:"in_flight"`
		}]
	}
	qpsAnswer struct {
		Total int
		Items items[struct {
			Device, Type, State, Peer string
			QPN                       uint32
			PeerQPN                   uint32 `json:"peer_qpn"`
			Queued                    int
			InFlight                  int    `json:"in_flight"`
			RTT                       int64  `json:"rtt_us"`
			TxPackets                 uint64 `json:"tx_packets"`
			RxPackets                 uint64 `json:"rx_packets"`
			TxBytes                   uint64 `json:"tx_bytes"`
			RxBytes                   uint64 `json:"rx_bytes"`
			Retransmits, Drops        uint64
		}]
	}
	leasesAnswer struct {
		Items items[struct {
			Device, Command     string
			Process, User, Slot int
			Since               time.Time
			QPs                 int `json:"queue_pairs"`
			Connections         int
			TxPackets           uint64 `json:"tx_packets"`
			RxPackets           uint64 `json:"rx_packets"`
			TxBytes             uint64 `json:"tx_bytes"`
			RxBytes             uint64 `json:"rx_bytes"`
			Reached             items[struct{ Addr string }]
			Peers               items[string]
		}]
	}
)

// Sample implements Source.
func (d *Daemon) Sample(ctx context.Context) (*Sample, error) {
	var status statusAnswer
	var devices devicesAnswer
	var counters countersAnswer
	var leases leasesAnswer
	s := &Sample{}
	for _, q := range []struct {
		path string
		into any
	}{{"status", &status}, {"devices", &devices}, {"counters", &counters}, {"leases?limit=1000", &leases}} {
		if err := d.get(ctx, q.path, q.into); err != nil {
			return nil, err
		}
	}
	if err := d.queuePairs(ctx, s); err != nil {
		return nil, err
	}
	s.Time = time.Now()
	s.Source = fmt.Sprintf("rocev2d %s on %s, process %d", status.Version, status.Host, status.PID)
	s.Begin = fmt.Sprint(status.PID, " ", status.Started)
	switch {
	case status.Draining:
		s.State = "draining"
	case status.Ready:
		s.State = "ready"
	default:
		s.State = "not ready"
	}
	for _, i := range devices.Items {
		s.Devices = append(s.Devices, Device{Address: i.Address, Interface: i.Interface, State: i.State, QPs: i.QPs, MRs: i.MRs, Keys: i.Secured.keys()})
	}
	counters.addTo(s)
	leases.addTo(s)
	return s, nil
}

// keys is nil where nothing is secured.
func (a *securedAnswer) keys() *Keys {
	if a == nil {
		return nil
	}
	k := &Keys{}
	for _, h := range a.Hosts {
		switch {
		case h.Since.IsZero():
			k.Without++
		case k.Since.IsZero() || h.Since.Before(k.Since):
			k.Since = h.Since
		}
	}
	k.Hosts = a.Total - k.Without
	return k
}

// addTo adds the counters of the devices.
func (c *countersAnswer) addTo(s *Sample) {
	known := byKey(s.Devices, func(d *Device) string { return d.Address })
	for _, i := range c.Devices {
		to := known[i.Address]
		if to == nil {
			continue
		}
		to.traffic = traffic{i.Link["tx_bytes"], i.Link["rx_bytes"], i.Link["tx_packets"], i.Link["rx_packets"]}
		to.Again, to.InFlight, to.RTT = i.QPs["retransmits"], i.InFlight, i.RTT.Median_us
		for _, n := range i.Drops {
			to.Dropped += n
		}
		for name, n := range i.Guard {
			if name != "guard_sealed" && name != "guard_opened" && name != "guard_waited" {
				to.Dropped += n
			}
		}
	}
}

// addTo adds the programs.
func (l *leasesAnswer) addTo(s *Sample) {
	for _, i := range l.Items {
		p := Program{PID: i.Process, User: i.User, Slot: i.Slot, Command: i.Command, Device: i.Device, Since: i.Since, QPs: i.QPs, Connections: i.Connections,
			traffic: traffic{i.TxBytes, i.RxBytes, i.TxPackets, i.RxPackets}, Peers: i.Peers}
		for _, r := range i.Reached {
			p.Peers = append(p.Peers, r.Addr)
		}
		s.Programs = append(s.Programs, p)
	}
}

// queuePairs adds the queue pairs. Where there are very many it adds those that
// have sent most: the daemon sorts them, which costs it a look at all of them.
func (d *Daemon) queuePairs(ctx context.Context, s *Sample) error {
	order := ""
	for page := 0; page < mostPages; page++ {
		var a qpsAnswer
		if err := d.get(ctx, fmt.Sprintf("qps?limit=%d&offset=%d%s", pageSize, page*pageSize, order), &a); err != nil {
			return err
		}
		if a.Total > mostPages*pageSize && order == "" {
			order, page = "&sort=-tx_bytes", -1
			continue
		}
		s.QPsTotal = a.Total
		for _, i := range a.Items {
			s.QPs = append(s.QPs, QP{Device: i.Device, Type: i.Type, State: i.State, Peer: i.Peer, QPN: i.QPN, PeerQPN: i.PeerQPN,
				traffic: traffic{i.TxBytes, i.RxBytes, i.TxPackets, i.RxPackets}, Again: i.Retransmits, Dropped: i.Drops,
				InFlight: i.InFlight, Queued: i.Queued, RTT: i.RTT})
		}
		if len(a.Items) < pageSize {
			break
		}
	}
	s.QPsTotal = max(s.QPsTotal, len(s.QPs))
	return nil
}
