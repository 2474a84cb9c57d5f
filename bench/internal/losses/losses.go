// Package losses tells packets that were sent again because one was lost from
// those that were sent again because a process was not scheduled for a while.
//
// On loopback the kernel loses a datagram only where it counts it: at a full
// receive buffer or send buffer, or at the full queue of a processor. If it
// counted none during a run, what was sent again had not been lost.
package losses

import (
	"bufio"
	"bytes"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

// Needless is the name of the count of packets that were sent again though none
// was lost.
const Needless = "sent again though nothing was lost"

// repairs are the errors that follow from a loss, or from a pause.
var repairs = []string{"retransmissions", "ack timeouts"}

// Watch is what the kernel had counted when a run began.
type Watch struct {
	counted uint64
	ok      bool
}

// Begin begins to watch a run between two addresses.
func Begin(a, b string) Watch {
	for _, s := range []string{a, b} {
		if addr, err := netip.ParseAddr(s); err != nil || !addr.IsLoopback() {
			return Watch{} // nothing counts what a network loses
		}
	}
	return begin(os.DirFS("/"))
}

func begin(root fs.FS) Watch {
	n, ok := counted(root)
	return Watch{n, ok}
}

// Judge takes repairs from the errors of a run in which nothing was lost, and
// counts them apart.
func (w Watch) Judge(s *cell.Sample) { w.judge(s, os.DirFS("/")) }

func (w Watch) judge(s *cell.Sample, root fs.FS) {
	if now, ok := counted(root); !w.ok || !ok || now != w.counted {
		return
	}
	for name := range s.Errors {
		if !slices.Contains(repairs, name) {
			return // something else was wrong, and it may be why
		}
	}
	for _, name := range repairs {
		n := s.Errors[name]
		delete(s.Errors, name)
		if n == 0 || name != repairs[0] {
			continue
		}
		if s.Count == nil {
			s.Count = map[string]uint64{}
		}
		s.Count[Needless] += n
	}
}

// counted adds up what the kernel says that it has lost.
func counted(root fs.FS) (n uint64, ok bool) {
	snmp, err := fs.ReadFile(root, "proc/net/snmp")
	if err != nil {
		return 0, false
	}
	softnet, err := fs.ReadFile(root, "proc/net/softnet_stat")
	if err != nil {
		return 0, false
	}
	udp, ok := udpLosses(snmp)
	return udp + backlogLosses(softnet), ok
}

// udpLosses reads the two lines of UDP: names, then numbers.
func udpLosses(snmp []byte) (n uint64, ok bool) {
	var names []string
	for s := bufio.NewScanner(bytes.NewReader(snmp)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) == 0 || f[0] != "Udp:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, name := range names[:min(len(names), len(f))] {
			if name == "InErrors" || name == "SndbufErrors" { // the first has those of full receive buffers too
				v, err := strconv.ParseUint(f[i], 10, 64)
				if err != nil {
					return 0, false
				}
				n += v
			}
		}
		return n, true
	}
	return 0, false
}

// backlogLosses adds the second column, hexadecimal, of all processors.
func backlogLosses(softnet []byte) (n uint64) {
	for s := bufio.NewScanner(bytes.NewReader(softnet)); s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) > 1 {
			v, _ := strconv.ParseUint(f[1], 16, 64) // the kernel writes no other
			n += v
		}
	}
	return n
}
