package qptest

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// TestMarksSpareTheBuffer: where a buffer is too small, marks from a quarter of
// it on leave at most a tenth of the losses, and cost no goodput. A queue marks
// before it must drop (RFC 3168 5).
func TestMarksSpareTheBuffer(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
			p := floodParams{buffer: 64 << 10, probe: time.Millisecond, own: own}
			plain, lost := goodputAndLosses(t, op, rocev2.MTU4096, p)
			p.mark = p.buffer / 4
			marked, left := goodputAndLosses(t, op, rocev2.MTU4096, p)
			t.Logf("%v, own kind %v: %.0f Mb/s and %d losses, with marks %.0f and %d", op, own, plain/1e6, lost, marked/1e6, left)
			if left > lost/10 || marked < plain {
				t.Errorf("%v, own kind %v: %.0f Mb/s and %d losses, with marks %.0f and %d", op, own, plain/1e6, lost, marked/1e6, left)
			}
		}
	}
}
