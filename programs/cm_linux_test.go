package programs

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestConnectionManager runs the cases of testdata/cm.c, a program of
// librdmacm.
func TestConnectionManager(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		t.Skip("there are no headers of librdmacm: install librdmacm-dev")
	}
	lib, check := library(t), program(t, "cm", "-lrdmacm")
	for _, name := range []string{"rnr", "wildcard"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := realHost(t, Config{})
			cmd := exec.Command(check, name, h.cmDevices()[0].Dev.Addr().String())
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib, "ROCEV2_PROGRAMS="+h.config.Dir)
			cmd.WaitDelay = 5 * time.Second
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
