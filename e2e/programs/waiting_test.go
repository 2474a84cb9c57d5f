//go:build linux

package programs

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

// TestWaitingServerThatIsAwake: a server that polls for its clients waits,
// though it never sleeps and other programs take its processor now and then.
func TestWaitingServerThatIsAwake(t *testing.T) {
	t.Parallel()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for i := 0; one.Count() == 0; i++ {
		if all.IsSet(i) {
			one.Set(i)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var server *exec.Cmd
	for range 2 {
		server = exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := server.Start(); err != nil {
			t.Skipf("no shell (on Debian: apt-get install dash): %v", err)
		}
		defer server.Wait()
		defer server.Process.Kill()
		if err := unix.SchedSetaffinity(server.Process.Pid, &one); err != nil {
			t.Fatal(err)
		}
	}
	if err := waiting(ctx, nil, &guest.Process{PID: server.Process.Pid}); err != nil {
		t.Error(err)
	}
}
