package ours

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/verbs"
)

// idle has connected queue pairs, each of which has carried a message, and
// measures what they cost while they do nothing: CPU time, or memory.
type idle struct {
	*side
	heapBefore, residentBefore uint64
}

// Hello opens the device; for the memory test, the figures before the queue
// pairs are taken now.
func (d *idle) Hello() (any, error) {
	h, err := d.side.Hello()
	if err != nil || d.cfg.Test != Memory {
		return h, err
	}
	d.heapBefore, d.residentBefore = memoryInUse()
	return d.createQPs()
}

// Connect connects the queue pairs.
func (d *idle) Connect(raw json.RawMessage) error { return d.side.Connect(raw) }

// Run carries a message on each queue pair and then measures.
func (d *idle) Run(stop <-chan struct{}) (pair.Result, error) {
	r := newResult()
	if d.cfg.Active {
		if err := d.useEach(); err != nil {
			return r, err
		}
	}
	if d.cfg.Test == Memory {
		if !d.cfg.Active {
			<-stop // the peer has used every queue pair by now
		}
		heap, resident := memoryInUse()
		n := float64(len(d.qps))
		r.Values["heap_per_qp"] = (float64(heap) - float64(d.heapBefore)) / n
		r.Values["resident_per_qp"] = (float64(resident) - float64(d.residentBefore)) / n
		runtime.KeepAlive(d.qps)
	} else {
		time.Sleep(d.cfg.Warm)
		d.begin()
		wait := time.After(d.cfg.Measure)
		if d.cfg.Active {
			<-wait
		} else {
			select {
			case <-stop:
			case <-wait:
			}
		}
		d.costs(&r)
		r.Values["percent"] = 100 * r.Values["cpu_seconds"] / r.Values["seconds"]
	}
	if !d.cfg.Active {
		<-stop
	}
	d.mishaps(&r)
	return r, nil
}

// useEach carries one WRITE on every queue pair.
func (d *idle) useEach() error {
	var wc [64]verbs.WC
	w := newWatch()
	defer w.end()
	for posted, done := 0, 0; done < len(d.qps); {
		for posted < len(d.qps) && posted-done < 256 {
			err := d.qps[posted].PostSend(verbs.SendWR{
				Opcode: verbs.OpWrite, Signaled: true, SGList: []verbs.SGE{d.source.Slice(0, d.cfg.Size)}, Remote: d.remote.At(0),
			})
			if err != nil {
				return fmt.Errorf("posting: %w", err)
			}
			posted++
		}
		n, err := d.cq.Wait(w.ctx, wc[:])
		if err != nil {
			return fmt.Errorf("%d of %d queue pairs used: %w", done, len(d.qps), w.why(err))
		}
		w.progress.Add(1)
		for i := range wc[:n] {
			if wc[i].Status != verbs.StatusSuccess {
				return wc[i].Err()
			}
		}
		done += n
	}
	return nil
}

// memoryInUse returns the bytes of live heap objects and those of the process
// that are resident, after a collection.
func memoryInUse() (heap, resident uint64) {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		if f := strings.Fields(string(b)); len(f) > 1 {
			pages, _ := strconv.ParseUint(f[1], 10, 64)
			resident = pages * uint64(os.Getpagesize())
		}
	}
	return m.HeapAlloc, resident
}
