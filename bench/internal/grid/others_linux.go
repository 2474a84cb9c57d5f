package grid

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is processor time up to one moment: of the whole machine, stolen by the
// hypervisor, and of this program and those that it ran.
type usage struct {
	at                 time.Time
	busy, stolen, mine time.Duration
}

const tick = time.Second / 100 // the unit of /proc/stat

func usageNow() usage {
	u := usage{at: time.Now()}
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if syscall.Getrusage(who, &r) == nil {
			u.mine += time.Duration(r.Utime.Nano() + r.Stime.Nano())
		}
	}
	if b, err := os.ReadFile("/proc/stat"); err == nil {
		u.busy, u.stolen = parseStat(string(b))
	}
	return u
}

// parseStat reads the first line of /proc/stat: cpu user nice system idle
// iowait irq softirq steal …
func parseStat(s string) (busy, stolen time.Duration) {
	line, _, _ := strings.Cut(s, "\n")
	for i, f := range strings.Fields(line) {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			continue
		}
		switch i {
		case 1, 2, 3, 6, 7:
			busy += time.Duration(n) * tick
		case 8:
			stolen += time.Duration(n) * tick
		}
	}
	return busy, stolen
}

// others returns which share of one processor other programs and the hypervisor
// took since before, in percent.
func (u usage) others(before usage) float64 {
	wall := u.at.Sub(before.at)
	if wall <= 0 || u.busy == 0 {
		return 0
	}
	rest := (u.busy - before.busy) - (u.mine - before.mine) + (u.stolen - before.stolen)
	return 100 * max(rest.Seconds(), 0) / wall.Seconds()
}
