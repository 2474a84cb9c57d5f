package server

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/web"
)

// column is a column of a table of the page. key is the name of the field that
// it is sorted by, "" where it is not.
type column[T any] struct {
	key, title, means string
	number            bool
	cell              func(*T) web.Cell
}

var qpColumns = []column[qpInfo]{
	{"qpn", "QPN", "", false, func(q *qpInfo) web.Cell { return code(fmt.Sprintf("0x%06x", q.QPN)) }},
	{"type", "Type", "", false, func(q *qpInfo) web.Cell { return text(q.Type) }},
	{"state", "State", "", false, func(q *qpInfo) web.Cell { return tag(q.State) }},
	{"peer", "Peer", "", false, func(q *qpInfo) web.Cell { return text(peerText(q)) }},
	{"send_psn", "Send PSN", "packet sequence number of the next packet to send", false, func(q *qpInfo) web.Cell { return hexNumber(q.SendPSN) }},
	{"oldest_psn", "Oldest PSN", "oldest packet sequence number that the peer has not acknowledged", false, func(q *qpInfo) web.Cell { return hexNumber(q.OldestPSN) }},
	{"receive_psn", "Receive PSN", "packet sequence number of the next packet that is expected", false, func(q *qpInfo) web.Cell { return hexNumber(q.ExpectedPSN) }},
	{"in_flight", "In flight", "", true, func(q *qpInfo) web.Cell { return some(uint64(q.InFlight), bytesText) }},
	{"rtt_us", "RTT", "", true, func(q *qpInfo) web.Cell { return some(uint64(q.RTTMicros), microsText) }},
	{"tx_bytes", "Sent", "", true, func(q *qpInfo) web.Cell { return number(bytesText(float64(q.TxBytes))) }},
	{"rx_bytes", "Received", "", true, func(q *qpInfo) web.Cell { return number(bytesText(float64(q.RxBytes))) }},
	{"retransmits", "Again", "packets sent again", true, func(q *qpInfo) web.Cell { return some(q.Retransmits, wholeText) }},
	{"drops", "Dropped", "", true, func(q *qpInfo) web.Cell { return some(q.Drops, wholeText) }},
}

func wholeText(n float64) string { return strconv.FormatFloat(n, 'f', 0, 64) }

func peerText(q *qpInfo) string {
	if q.Peer == "" || q.PeerQPN == 0 {
		return q.Peer
	}
	return fmt.Sprintf("%s 0x%06x", q.Peer, q.PeerQPN)
}

var regionColumns = []column[regionInfo]{
	{"name", "Name", "", false, func(r *regionInfo) web.Cell { return code(r.Name) }},
	{"device", "Device", "", false, func(r *regionInfo) web.Cell { return text(r.Device) }},
	{"size", "Size", "", true, func(r *regionInfo) web.Cell { return number(bytesText(float64(r.Size))) }},
	{"file", "Memory", "", false, func(r *regionInfo) web.Cell {
		if r.File == "" {
			return text("anonymous")
		}
		return text(r.File)
	}},
	{"access", "Access", "", false, func(r *regionInfo) web.Cell { return text(r.Access) }},
	{"", "Who", "", false, func(r *regionInfo) web.Cell {
		if r.TLS {
			return wideText(strings.Join(r.Allow, ", ") + ", secured")
		}
		return wideText(strings.Join(r.Allow, ", "))
	}},
	{"opened", "Opened", "", true, func(r *regionInfo) web.Cell { return number(wholeText(float64(r.Opened))) }},
	{"refused", "Refused", "", true, func(r *regionInfo) web.Cell { return some(r.Refused, wholeText) }},
}

var connectionColumns = []column[Visit]{
	{"peer", "Peer", "", false, func(v *Visit) web.Cell { return text(v.Peer) }},
	{"target", "What", "", false, func(v *Visit) web.Cell { return text(v.Target) }},
	{"device", "Device", "", false, func(v *Visit) web.Cell { return text(v.Device) }},
	{"qpn", "QPN", "", false, func(v *Visit) web.Cell {
		if v.QPN == 0 {
			return text("")
		}
		return code(fmt.Sprintf("0x%06x", v.QPN))
	}},
	{"", "Secured", "the cipher, and the first name of the client's certificate", false, func(v *Visit) web.Cell { return text(securedText(v.TLS)) }},
	{"begin", "Since", "", false, func(v *Visit) web.Cell { return text(sinceText(time.Now(), v.Begin)) }},
}

func securedText(s *SecuredBy) string {
	if s == nil {
		return ""
	}
	return strings.TrimSuffix(s.Cipher+", "+s.Name, ", ")
}

var peerColumns = []column[Visit]{
	{"end", "When", "", false, func(v *Visit) web.Cell { return clock(v.End) }},
	{"peer", "Peer", "", false, func(v *Visit) web.Cell { return text(v.Peer) }},
	{"target", "What", "", false, func(v *Visit) web.Cell {
		if v.Count > 1 {
			return text(fmt.Sprintf("%s, %d connections", v.Target, v.Count))
		}
		return text(v.Target)
	}},
	{"device", "Device", "", false, func(v *Visit) web.Cell { return text(v.Device) }},
	{"", "Took", "", true, func(v *Visit) web.Cell { return number(microsText(float64(max(v.End.Sub(v.Begin), 0).Microseconds()))) }},
	{"error", "Result", "", false, func(v *Visit) web.Cell {
		switch {
		case v.Error != "":
			return web.Cell{Tag: "failed", Tone: "bad", Text: v.Error, Class: "wide"}
		case v.Result != "":
			return wideText(v.Result)
		}
		return wideText("done")
	}},
}

// ratedLease is a lease, with what it sends and receives at the moment.
type ratedLease struct {
	leaseInfo
	tx, rx float64 // bytes in a second; negative: not known
}

var leaseColumns = []column[ratedLease]{
	{"process", "Process", "", false, func(l *ratedLease) web.Cell {
		if l.Process == 0 {
			return text("?")
		}
		return text(strconv.Itoa(l.Process))
	}},
	{"command", "Command", "", false, func(l *ratedLease) web.Cell {
		if l.Own {
			return text(l.Command + " (this daemon)")
		}
		return text(l.Command)
	}},
	{"user", "User", "", false, func(l *ratedLease) web.Cell { return text(strconv.Itoa(int(l.User))) }},
	{"device", "Device", "", false, func(l *ratedLease) web.Cell { return text(l.Device) }},
	{"since", "Since", "", false, func(l *ratedLease) web.Cell { return text(sinceText(time.Now(), l.Since)) }},
	{"queue_pairs", "Queue pairs", "", true, func(l *ratedLease) web.Cell {
		return number(countText(float64(l.QueuePairs)) + " of " + countText(float64(l.Made)))
	}},
	{"connections", "Connections", "", true, func(l *ratedLease) web.Cell { return number(countText(float64(l.Connections))) }},
	{"tx_bytes", "Sent", "", true, func(l *ratedLease) web.Cell { return number(passedText(l.TxBytes, l.TxShm, l.tx)) }},
	{"rx_bytes", "Received", "", true, func(l *ratedLease) web.Cell { return number(passedText(l.RxBytes, l.RxShm, l.rx)) }},
	{"", "Peers", "", false, func(l *ratedLease) web.Cell { return wideText(l.peersText()) }},
}

// passedText says how many bytes have passed, how fast, and how many of them
// through shared memory.
func passedText(n, shm uint64, rate float64) string {
	s := bytesText(float64(n))
	if rate >= 0 {
		s += ", " + scaled(8*rate, 1000, "b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s")
	}
	if shm > 0 {
		s += ", " + bytesText(float64(shm)) + " of it through shared memory"
	}
	return s
}

// peersText lists the peers of queue pairs, and those of connections that have
// none.
func (l *ratedLease) peersText() string {
	var list, known []string
	for _, p := range l.Reached {
		known = append(known, p.Addr.String())
		if p.Native {
			list = append(list, p.Addr.String()+" (rocev2)")
		} else {
			list = append(list, p.Addr.String())
		}
	}
	for _, p := range l.Peers {
		if !slices.Contains(known, p) {
			list = append(list, p)
		}
	}
	return strings.Join(list, ", ")
}
