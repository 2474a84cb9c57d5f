package programs

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the time on processors of this process, which is the daemon, and
// of its children.
func cpuTime(b *testing.B) (t time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var r unix.Rusage
		if err := unix.Getrusage(who, &r); err != nil {
			b.Fatal(err)
		}
		t += time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return t
}

// BenchmarkCommands measures a command and what undoes it, on the processors of
// both the program and the daemon.
func BenchmarkCommands(b *testing.B) {
	lib, commands := library(b), program(b, "commands")
	for _, name := range []string{"domain", "memory-4KiB", "memory-1MiB", "cq", "qp"} {
		b.Run(name, func(b *testing.B) {
			h := realHost(b, Config{})
			before := cpuTime(b)
			cmd := exec.Command(commands, name, strconv.Itoa(b.N))
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib, "ROCEV2_PROGRAMS="+h.config.Dir)
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				b.Fatalf("%v\n%s", err, out)
			}
			b.ReportMetric(float64(cpuTime(b)-before)/1e3/float64(b.N), "cpu-µs/op")
		})
	}
}
