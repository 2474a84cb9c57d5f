package verbs

import (
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/qp/trace"
)

// tracer writes what Config.Trace asks for. A nil one writes nothing.
type tracer struct {
	device string

	mu     sync.Mutex
	w      *trace.Writer
	closed bool
	err    error
}

func newTracer(w io.Writer, device netip.Addr) *tracer {
	if w == nil {
		return nil
	}
	return &tracer{device: device.String(), w: trace.NewWriter(w)}
}

// write takes an event of any shard.
func (t *tracer) write(at time.Duration, e *trace.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.w.Write(at, t.device, e)
	}
}

// close completes what was written, once, and returns what went wrong.
func (t *tracer) close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.closed = true
		t.err = t.w.Close()
	}
	return t.err
}
