package pair

import (
	"runtime/metrics"
	"time"
)

// Costs are those of this process up to one moment.
type Costs struct {
	at      time.Time
	cpu     time.Duration
	objects uint64 // allocated on the heap since the process began
}

// CostsNow returns the costs up to now.
func CostsNow() Costs {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(s)
	return Costs{at: time.Now(), cpu: cpuTime(), objects: s[0].Value.Uint64()}
}

// AddTo adds to a result what was spent since c.
func (c Costs) AddTo(r *Result) {
	now := CostsNow()
	r.Values["seconds"] = now.at.Sub(c.at).Seconds()
	r.Values["cpu_seconds"] = (now.cpu - c.cpu).Seconds()
	r.Values["heap_objects"] = float64(now.objects - c.objects)
}

// Until returns how long a time is after that moment.
func (c Costs) Until(t time.Time) time.Duration { return t.Sub(c.at) }
