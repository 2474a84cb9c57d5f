package requester

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Middle returns where the payloads of the next responses to the READ under way
// go, from the one of PSN psn on: those between the first and the last. Before
// that one, ahead responses to the same request were received and are not
// executed. The view is pinned unless there is nothing.
//
// Responses are executed in order, so nothing of that memory was written
// before, and all of it is before the READ is complete.
func Middle(r *Requester, psn rocev2.PSN, ahead int) memreg.View {
	if psn != r.una.Add(ahead) || r.max == r.una || r.reorder.Len() > 0 {
		return memreg.View{}
	}
	w := r.queue.At(r.queue.Head)
	rel := psn.Ahead(w.First)
	if !w.Is(ib.OpReads) || rel >= w.PSNs || rel%r.chunkOf(w) == 0 {
		return memreg.View{}
	}
	v := r.c.Memory.PlaceLocal(r.c.PD, r.queue.List(r.queue.Head, w), uint64(rel)<<r.c.Shift)
	return v.Part(0, min(v.Len(), uint64(r.chunkEnd(w, rel)-rel-1)<<r.c.Shift))
}

// HandleRun takes n responses whose payloads lie where Middle has said, and
// returns how many there were until the connection has failed. Each is progress
// of its own, for the timers and the window.
func HandleRun(r *Requester, now clock.Time, n int) int {
	w := r.queue.At(r.queue.Head)
	rel := r.una.Ahead(w.First)
	for i := range n {
		from, pos := r.una, r.posUna
		rel++
		r.una, r.posUna = from.Next(), r.position(w, rel)
		if r.progress(now, from, pos); r.c.Failed() {
			return i + 1
		}
		r.noteGivenUp()
	}
	return n
}
