package server

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/gosoftroce/rocev2/verbs"
)

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

// queuePairs lists the queue pairs of all devices, or of device=; state=
// chooses those in a state, find= those whose number or peer has a text in it,
// and sort= their order. Then every queue pair is looked at, else only those of
// the page.
func (h *handlers) queuePairs(q url.Values) (p Page[qpInfo], err error) {
	offset, limit, err := window(q)
	if err != nil {
		return p, err
	}
	o, err := orderOf[qpInfo](q.Get("sort"))
	if err != nil {
		return p, err
	}
	c := choice{strings.ToUpper(q.Get("state")), strings.ToLower(q.Get("find"))}
	if c.state != "" && !slices.Contains(qpStates, c.state) {
		return p, fmt.Errorf("state=%s: there are %s", clip(c.state), strings.Join(qpStates, ", "))
	}
	devices, err := h.devicesNamed(q.Get("device"))
	if err != nil {
		return p, err
	}
	if o != (order{}) {
		all := allChosen(devices, c)
		return page(sorted(all, o), offset, limit), nil
	}
	p = Page[qpInfo]{Offset: offset, Items: []qpInfo{}}
	for _, d := range devices {
		numbers := d.dev.QPNs()
		if c == (choice{}) {
			from := min(max(offset-p.Total, 0), len(numbers))
			p.Total += len(numbers)
			numbers = numbers[from:min(from+limit-len(p.Items), len(numbers))]
		}
		for _, n := range numbers {
			qp := d.dev.QP(n)
			switch {
			case qp == nil:
			case c == (choice{}):
				p.Items = append(p.Items, infoOf(d.addr(), qp))
			case c.has(qp):
				if p.Total++; p.Total > offset && len(p.Items) < limit {
					p.Items = append(p.Items, infoOf(d.addr(), qp))
				}
			}
		}
	}
	p.Offset = min(p.Offset, p.Total)
	return p, nil
}

// choice is which queue pairs are listed. The zero value is all.
type choice struct{ state, find string }

func (c choice) has(q *verbs.QP) bool {
	return (c.state == "" || q.State().String() == c.state) && (c.find == "" || found(q, c.find))
}

func allChosen(devices []*device, c choice) (all []qpInfo) {
	for _, d := range devices {
		for _, n := range d.dev.QPNs() {
			if qp := d.dev.QP(n); qp != nil && c.has(qp) {
				all = append(all, infoOf(d.addr(), qp))
			}
		}
	}
	return all
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
