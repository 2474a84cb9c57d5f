package server

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/transport/tap"
)

// recorder records packets of devices on demand. There is one recording at a
// time; the last one can be fetched until the next begins.
type recorder struct {
	most int // bytes

	mu      sync.Mutex
	running bool
	ring    *tap.Ring
	taps    []*tap.Switch // that record
	status  CaptureStatus
}

// CaptureStatus is how the recording stands.
type CaptureStatus struct {
	Running bool      `json:"running"`
	Device  string    `json:"device,omitempty"` // empty: all
	Filter  string    `json:"filter,omitempty"`
	Begin   time.Time `json:"begin,omitzero"`
	End     time.Time `json:"end,omitzero"`
	Seen    uint64    `json:"seen"`    // packets that crossed the links
	Matched uint64    `json:"matched"` // of these, those that the filter let through
	Kept    int       `json:"kept"`    // packets to download
	Bytes   int       `json:"bytes"`   // that they take
	Size    int       `json:"size"`    // that they may take
	Most    int       `json:"most"`    // what size may be
}

// start begins a recording of the given size in bytes; 0 means the largest that
// is allowed.
func (c *recorder) start(now time.Time, taps []*tap.Switch, device, filter string, bytes int) error {
	f, err := tap.ParseFilter(filter)
	if err != nil {
		return err
	}
	if bytes < 0 || bytes > c.most {
		return fmt.Errorf("%d bytes: a recording takes at most %d (capture.memory of the configuration)", bytes, c.most)
	}
	if bytes == 0 {
		bytes = c.most
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return fmt.Errorf("a recording runs already, since %s: stop it first", c.status.Begin.Format(time.TimeOnly))
	}
	c.ring, c.running, c.taps = nil, true, taps // the old ring can go before the new one is made
	c.ring = tap.NewRing(bytes, f)
	c.status = CaptureStatus{Device: device, Filter: filter, Begin: now}
	for _, t := range taps {
		t.Record(c.ring)
	}
	return nil
}

func (c *recorder) stop(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running {
		return fmt.Errorf("no recording runs")
	}
	for _, t := range c.taps {
		t.Record(nil)
	}
	c.running, c.taps, c.status.End = false, nil, now
	return nil
}

func (c *recorder) state() CaptureStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.status
	s.Running, s.Most = c.running, c.most
	if c.ring != nil {
		r := c.ring.Stats()
		s.Seen, s.Matched, s.Kept, s.Bytes, s.Size = r.Seen, r.Matched, r.Kept, r.Bytes, r.Size
	}
	return s
}

// writeTo writes the recording, also while it runs.
func (c *recorder) writeTo(w io.Writer) error {
	c.mu.Lock()
	r := c.ring
	c.mu.Unlock()
	if r == nil {
		return fmt.Errorf("nothing was recorded yet")
	}
	_, err := r.WriteTo(w)
	return err
}
