package verbs_test

import (
	"errors"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// A completion tells which check of a memory access failed. The status alone is
// the same for all of them (IBTA 11.6.2).
func TestFaultOfACompletion(t *testing.T) {
	t.Parallel()
	a, b := newPair(t, 64)
	a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{{Addr: 1, Length: 8, LKey: 1}}, Remote: b.mr.RemoteAt(0)})
	wc := a.wait()
	err := wc.Err()
	if wc.Status != verbs.StatusLocProtErr || wc.Fault() != verbs.FaultUnknownKey || wc.VendorErr != verbs.VendorFault|uint32(verbs.FaultUnknownKey) {
		t.Errorf("a key of nothing: %v, fault %v", wc, wc.Fault())
	}
	if !errors.Is(err, verbs.FaultUnknownKey) || !errors.Is(err, verbs.StatusLocProtErr) || errors.Is(err, verbs.FaultNone) || errors.Is(err, verbs.FaultGone) {
		t.Errorf("the error is %v", err)
	}
	for _, c := range []struct {
		wc   verbs.WC
		want verbs.Fault
	}{
		{verbs.WC{}, verbs.FaultNone},
		{verbs.WC{Status: verbs.StatusRemAccessErr, VendorErr: verbs.VendorNAK | 2}, verbs.FaultNone},
		{verbs.WC{Status: verbs.StatusLocProtErr, VendorErr: verbs.VendorFault | 2}, verbs.FaultWrongPD},
	} {
		if got := c.wc.Fault(); got != c.want {
			t.Errorf("%v: fault %v, want %v", c.wc, got, c.want)
		}
	}
}
