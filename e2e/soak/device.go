//go:build unix

package main

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/transport/fault"
	"github.com/gosoftroce/rocev2/verbs"
)

// open makes the device of a process, on a link that loses packets.
func open(o options) (*verbs.Device, error) {
	at, err := netip.ParseAddr(o.addr)
	if err != nil {
		return nil, err
	}
	rule, err := fault.ParseRule("drop=" + o.loss)
	if err != nil {
		return nil, err
	}
	return verbs.OpenAddr(at, verbs.Config{Leased: o.shared, Wrap: func(l verbs.Link) verbs.Link {
		return fault.New(l, uint64(time.Now().UnixNano()), rule)
	}})
}

// deviceFailed is the exit status of a process whose device has failed, as it
// does when the owner of its port ends, or that finds no owner.
const deviceFailed = 3

// endWith ends the process when its device has failed.
func endWith(ctx context.Context, dev *verbs.Device) {
	for e, err := range dev.Events(ctx) {
		if err != nil {
			return
		}
		if e.Event == verbs.EventDeviceFatal {
			os.Exit(deviceFailed)
		}
	}
}

// sample is what a process says of itself, as a line of JSON on its standard
// output. Rounds is the number of rounds that all connections of a client have
// done, Slowest that of the one with the fewest.
type sample struct {
	Goroutines int    `json:"goroutines"`
	Heap       uint64 `json:"heap"` // bytes, after a collection
	RSS        uint64 `json:"rss"`  // bytes
	QPs        int    `json:"qps"`
	MRs        int    `json:"mrs"`
	Rounds     uint64 `json:"rounds"`
	Slowest    uint64 `json:"slowest"`
	Verified   uint64 `json:"verified"` // records and counters found after a new connection
	Dials      uint64 `json:"dials"`
	Lost       string `json:"lost,omitempty"` // what was acknowledged and is not there
}

// take fills in what the process takes.
func (s *sample) take(dev *verbs.Device) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	st := dev.Stats()
	s.Goroutines, s.Heap, s.RSS = runtime.NumGoroutine(), m.HeapAlloc, residentBytes("self")
	s.QPs, s.MRs = st.QPs, st.MRs
}

func (s *sample) print() {
	b, err := json.Marshal(s)
	if err == nil {
		_, err = os.Stdout.Write(append(b, '\n'))
	}
	if err != nil { // the controller is gone
		os.Exit(1)
	}
}

// residentBytes is the memory of a process; 0 where the system does not say it.
func residentBytes(pid string) uint64 {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kb, _ := strconv.ParseUint(f[1], 10, 64)
			return kb << 10
		}
	}
	return 0
}
