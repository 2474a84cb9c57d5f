package top

import (
	"strings"
	"time"
	"unicode"
)

// Sample is what there was at a time.
type Sample struct {
	Time   time.Time
	Source string // what has told it: a daemon, with its version
	State  string // of the daemon: ready
	Begin  string // differs where counters have begun anew
	Notice string // what is missing, and why

	Devices  []Device
	QPs      []QP // the first ones
	QPsTotal int
	Programs []Program
}

// traffic counts what has passed since a beginning.
type traffic struct {
	TxBytes, RxBytes, TxPackets, RxPackets uint64
}

// Device is a device, or a port that programs share.
type Device struct {
	Address, Interface, State string
	QPs, MRs                  int
	traffic
	Again, Dropped uint64 // packets sent again, and dropped
	InFlight       int    // bytes
	RTT            int64  // µs; the median of its queue pairs
	Keys           *Keys  // nil: its packets go in clear
}

// Keys are those of a device that seals all packets.
type Keys struct {
	Hosts, Without int       // hosts with which there are keys, and others
	Since          time.Time // of the oldest keys; zero: there are none
}

// QP is a queue pair.
type QP struct {
	Device, Type, State, Peer string
	QPN, PeerQPN              uint32
	traffic
	Again, Dropped   uint64
	InFlight, Queued int
	RTT              int64 // µs
}

// Program is a process that has a share of a port.
type Program struct {
	PID, User, Slot int
	Command, Device string
	Since           time.Time
	QPs             int
	Connections     int
	traffic
	Peers []string
}

// shown returns a text as it may be shown: it has at most most characters, and
// none that a terminal obeys, or that changes those beside it.
func shown(s string, most int) string {
	var b strings.Builder
	for _, r := range s {
		if most--; most < 0 {
			break
		}
		if !unicode.IsPrint(r) || unicode.Is(unicode.M, r) || r == unicode.ReplacementChar {
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// mostText is the longest text of a cell.
const mostText = 64
