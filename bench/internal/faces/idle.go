package faces

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
)

// idle has connections that do nothing, and measures what that costs.
type idle struct {
	*base
	mu   sync.Mutex
	all  []channel
	full chan struct{} // closed when all have come
}

const dialers = 8 // at the same time

// Run dials them all, or takes them, and measures.
func (d *idle) Run(stop <-chan struct{}) (pair.Result, error) {
	r := newResult()
	add := func(name string) {
		m := memoryOf(os.Getpid())
		r.Values["rss_mb"+name], r.Values["pss_mb"+name] = m.rss, m.pss
	}
	debug.FreeOSMemory()
	add("_before")
	d.all = make([]channel, 0, d.cfg.Conns)
	d.full = make(chan struct{})
	if !d.cfg.Active {
		go d.accepting(d.take)
		select {
		case <-d.full:
		case <-stop: // the other side has failed
			return r, fmt.Errorf("%d connections have come", len(d.all))
		}
	} else if err := d.dialAll(); err != nil {
		return r, err
	}
	time.Sleep(settle)
	add("_as_is")
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.Values["heap_mb"] = float64(m.HeapAlloc) / 1e6
	add("")
	before := pair.CostsNow()
	time.Sleep(max(3*d.cfg.Measure, 2*time.Second))
	before.AddTo(&r)
	r.Values["cpu_percent"] = 100 * r.Values["cpu_seconds"] / r.Values["seconds"]
	d.mishaps(&r)
	if d.cfg.Active {
		time.Sleep(settle) // the other side measures until then at most
	} else if isClosed(stop) {
		return r, errors.New("the other side has ended first")
	} else {
		<-stop
	}
	runtime.KeepAlive(d.all)
	return r, nil
}

// settle is for what the connection manager still says when connections have
// been made.
const settle = time.Second

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (d *idle) take(c channel) {
	if d.cfg.Used {
		var b [8]byte
		if err := c.recv(b[:]); err != nil {
			return // one is missing, which is seen
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all = append(d.all, c); len(d.all) == d.cfg.Conns {
		close(d.full)
	}
}

func (d *idle) dialAll() error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make(chan error, dialers)
	for range dialers {
		wg.Go(func() {
			for next.Add(1) <= int64(d.cfg.Conns) {
				c, err := d.face.dial(d.ctx, d.peer)
				if err == nil && d.cfg.Used {
					err = c.send(make([]byte, 8))
				}
				if err != nil {
					errs <- err
					return
				}
				d.mu.Lock()
				d.all = append(d.all, c)
				d.mu.Unlock()
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// memory is what of a process is resident, in 10^6 bytes: all of it, and with
// what it shares with other processes divided by their number.
type memory struct{ rss, pss float64 }

func memoryOf(pid int) (m memory) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return m
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			continue
		}
		switch f[0] {
		case "Rss:":
			m.rss = kb * 1024 / 1e6
		case "Pss:":
			m.pss = kb * 1024 / 1e6
		}
	}
	return m
}
