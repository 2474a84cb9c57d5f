package hca

import (
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// Modify may be called beside Close, also with what it refuses.
func TestModifyBesideClose(t *testing.T) {
	t.Parallel()
	h := &host{t: t, dev: newTestOwner(t).dev}
	h.equip()
	for range 300 {
		q := h.newQP()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for range 10 {
					if q.Modify(&ib.Attr{State: ib.StateRTR}, ib.AttrState|ib.AttrAV) == nil {
						t.Error("a peer without an address is taken")
					}
				}
			})
		}
		h.must(q.Close())
		wg.Wait()
	}
}
