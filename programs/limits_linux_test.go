package programs

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/uverbs"
)

// TestLimits runs the cases of testdata/limits.c.
func TestLimits(t *testing.T) {
	t.Parallel()
	lib, check := library(t), program(t, "limits")
	for _, name := range []string{"maxima", "qpn", "resizers"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := realHost(t, Config{Quota: uverbs.Quota{RingBytes: 4 << 20}})
			cmd := exec.Command(check, name)
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib, "ROCEV2_PROGRAMS="+h.config.Dir)
			cmd.WaitDelay = 5 * time.Second
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
