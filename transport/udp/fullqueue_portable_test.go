//go:build !linux || portable

package udp

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

// TestFullQueueIsWaitedFor: where the queue of the interface is full, Send
// waits, and not for ever.
func TestFullQueueIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q fullQueue
		var stats transport.LinkCounters
		full, start := os.NewSyscallError("sendto", noRoom), time.Now()
		for i := range maxStarved {
			if !q.mayWait(full, &stats) {
				t.Fatalf("it gave up after %d pauses", i)
			}
		}
		if q.mayWait(full, &stats) {
			t.Error("it does not give up")
		}
		if d := time.Since(start); d != maxStarved*starvePause {
			t.Errorf("it waited for %v", d)
		}
		q.waited = 0
		if q.mayWait(os.NewSyscallError("sendto", syscall.EINVAL), &stats) {
			t.Error("it waits after an error that does not pass")
		}
	})
}
