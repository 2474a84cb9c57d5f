package verbs_test

import (
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// TestDefaultRdAtomic: how many READs and atomics may be outstanding follows
// what the Endpoints say. Both sides arrive at the same numbers, also where one
// is of a version whose Endpoint says nothing.
func TestDefaultRdAtomic(t *testing.T) {
	t.Parallel()
	a, b, _, _ := mtuSides(t, 9000, 9000)
	const most, old = 128, 16
	for name, c := range map[string]struct {
		says       uint8 // the Endpoint of the peer
		config     verbs.ConnectConfig
		out, takes uint8
	}{
		"this version":     {says: most, out: most, takes: most},
		"an older version": {says: 0, out: old, takes: old},
		"fewer":            {says: 4, out: 4, takes: most},
		"nonsense":         {says: 255, out: most, takes: most},
		"the program's":    {most, verbs.ConnectConfig{MaxRdAtomic: verbs.Set(uint8(3)), MaxDestRdAtomic: verbs.Set(uint8(5))}, 3, 5},
	} {
		end := overJSON(t, b.qp.Endpoint())
		if end.MaxDestRdAtomic != most {
			t.Fatalf("the Endpoint says %d", end.MaxDestRdAtomic)
		}
		end.MaxDestRdAtomic = c.says
		q := a.newQP(verbs.QPConfig{})
		check(t, q.Connect(t.Context(), end, verbs.WithConfig(c.config)))
		if got := q.Query(); got.MaxRdAtomic != c.out || got.MaxDestRdAtomic != c.takes {
			t.Errorf("%s: %d outstanding and %d taken, want %d and %d", name, got.MaxRdAtomic, got.MaxDestRdAtomic, c.out, c.takes)
		}
		// A queue pair that is connected anew goes by the new peer.
		check(t, q.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState))
		end.MaxDestRdAtomic = 0
		check(t, q.Connect(t.Context(), end))
		if got := q.Query(); got.MaxRdAtomic != old || got.MaxDestRdAtomic != old {
			t.Errorf("%s, then an older version: %d outstanding and %d taken", name, got.MaxRdAtomic, got.MaxDestRdAtomic)
		}
		check(t, q.Close())
	}
	for _, typ := range []verbs.QPType{verbs.UC, verbs.UD} {
		q := a.newQP(verbs.QPConfig{Type: typ})
		if n := q.Endpoint().MaxDestRdAtomic; n != 0 {
			t.Errorf("the Endpoint of %v says %d", typ, n)
		}
		check(t, q.Close())
	}
}
