package programs

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// bulk compiles the cases of bulk data.
func bulk(t *testing.T) string {
	t.Helper()
	return program(t, "bulk", "testdata/bulkcases.c", "testdata/bulkends.c")
}

// TestBulk runs the cases of testdata/bulkcases.c: what becomes of bulk data
// between processes while something else happens to them, on one device and
// between two.
func TestBulk(t *testing.T) {
	t.Parallel()
	lib, check := library(t), bulk(t)
	for _, c := range []struct {
		name    string
		devices int
		env     string
	}{
		{"eight", 1, ""}, {"eight", 2, ""}, {"stopped", 2, ""}, {"killed", 2, ""}, {"heir", 1, ""},
		{"resize", 1, ""}, {"resize", 2, copied}, {"fork", 2, ""}, {"ends", 1, ""}, {"ends", 2, copied},
		{"armed", 1, ""}, {"armed", 2, ""}, {"solicited", 2, ""}, {"datagrams", 1, ""}, {"datagrams", 2, ""},
	} {
		name := c.name + "/one device"
		if c.devices == 2 {
			name = c.name + "/two devices"
		}
		if c.env != "" {
			name += ", copied"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := realHost(t, Config{})
			if c.devices == 2 {
				if err := h.OpenDevice(loopback()(), verbs.Config{Loopback: true}); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(check, c.name)
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib, "ROCEV2_PROGRAMS="+h.config.Dir, c.env)
			cmd.WaitDelay = 5 * time.Second // of a child that is left over
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// copied has the daemon copy memory by system calls, and map none.
const copied = "ROCEV2_SHARE=0"

// TestDaemonKilled: the daemon is killed in the middle of bulk data. Both sides
// learn it, whether they poll or wait for events.
func TestDaemonKilled(t *testing.T) {
	t.Parallel()
	lib, check := library(t), bulk(t)
	for _, name := range []string{"gone", "gone-waiting"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, daemon := startDaemon(t, uint32(os.Geteuid()))
			cmd := exec.Command(check, name)
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib, "ROCEV2_PROGRAMS="+dir)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				t.Errorf("%q, %v", line, err)
			}
			if err := daemon.Process.Kill(); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
