package qp

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/datagram"
	"github.com/gosoftroce/rocev2/rocev2"
)

var testAddr = netip.MustParseAddr("10.0.0.9")

// attributes are all that there are, each with another value than goodAttr has,
// and what Attr says of it.
var attributes = []struct {
	attr ib.AttrMask
	set  func(*ib.Attr)
	get  func(*ib.Attr) any
}{
	{ib.AttrCurState, nil, nil},
	{ib.AttrEnableSQDNotify, func(a *ib.Attr) { a.EnableSQDNotify = true }, nil},
	{ib.AttrAccess, func(a *ib.Attr) { a.Access = ib.RemoteRead }, func(a *ib.Attr) any { return a.Access }},
	{ib.AttrPKeyIndex, func(a *ib.Attr) { a.PKeyIndex = 0 }, func(a *ib.Attr) any { return a.PKeyIndex }},
	{ib.AttrPort, func(a *ib.Attr) { a.Port = 1 }, func(a *ib.Attr) any { return a.Port }},
	{ib.AttrQKey, func(a *ib.Attr) { a.QKey = 0x1234 }, func(a *ib.Attr) any { return a.QKey }},
	{ib.AttrAV, func(a *ib.Attr) { a.AV.TrafficClass = 106 }, func(a *ib.Attr) any { return a.AV }},
	{ib.AttrPathMTU, func(a *ib.Attr) { a.PathMTU = rocev2.MTU512 }, func(a *ib.Attr) any { return a.PathMTU }},
	{ib.AttrTimeout, func(a *ib.Attr) { a.Timeout = 9 }, func(a *ib.Attr) any { return a.Timeout }},
	{ib.AttrRetryCount, func(a *ib.Attr) { a.RetryCount = 3 }, func(a *ib.Attr) any { return a.RetryCount }},
	{ib.AttrRNRRetry, func(a *ib.Attr) { a.RNRRetry = 2 }, func(a *ib.Attr) any { return a.RNRRetry }},
	{ib.AttrRQPSN, func(a *ib.Attr) { a.RQPSN = 77 }, func(a *ib.Attr) any { return a.RQPSN }},
	{ib.AttrMaxRdAtomic, func(a *ib.Attr) { a.MaxRdAtomic = 9 }, func(a *ib.Attr) any { return a.MaxRdAtomic }},
	{ib.AttrAltPath, nil, nil},
	{ib.AttrMinRNRTimer, func(a *ib.Attr) { a.MinRNRTimer = 31 }, func(a *ib.Attr) any { return a.MinRNRTimer }},
	{ib.AttrSQPSN, func(a *ib.Attr) { a.SQPSN = 88 }, func(a *ib.Attr) any { return a.SQPSN }},
	{ib.AttrMaxDestRdAtomic, func(a *ib.Attr) { a.MaxDestRdAtomic = 11 }, func(a *ib.Attr) any { return a.MaxDestRdAtomic }},
	{ib.AttrPathMigState, func(a *ib.Attr) { a.PathMigState = ib.MigMigrated }, func(a *ib.Attr) any { return a.PathMigState }},
	{ib.AttrCap, nil, nil},
	{ib.AttrDestQPN, func(a *ib.Attr) { a.DestQPN = 0x66 }, func(a *ib.Attr) any { return a.DestQPN }},
	{ib.AttrRateLimit, func(a *ib.Attr) { a.RateLimit, a.RateBurst = 9, 10 }, func(a *ib.Attr) any { return [2]uint32{a.RateLimit, a.RateBurst} }},
}

// ways are the shortest ways to every state.
var ways = map[ib.State][]ib.State{
	ib.StateReset: {},
	ib.StateInit:  {ib.StateInit},
	ib.StateRTR:   {ib.StateInit, ib.StateRTR},
	ib.StateRTS:   {ib.StateInit, ib.StateRTR, ib.StateRTS},
	ib.StateSQD:   {ib.StateInit, ib.StateRTR, ib.StateRTS, ib.StateSQD},
	ib.StateErr:   {ib.StateInit, ib.StateErr},
}

// TestEveryAttribute walks every attribute, for every type, on every change of
// state and in every state: it has its value afterwards, and no other attribute
// has changed, or it is refused with a reason and nothing has changed (IBTA
// 11.2.5.2).
func TestEveryAttribute(t *testing.T) {
	t.Parallel()
	taken := map[string]bool{}
	for _, typ := range []ib.QPType{ib.RC, ib.UC, ib.UD, ib.GSI, ib.XRCInitiator, ib.XRCTarget} {
		for from, way := range ways {
			for to := range ib.NumStates {
				for i := range attributes {
					q, _ := newInReset(t, typ)
					for _, s := range way {
						must(t, toState(q, s))
					}
					if walk(t, q, to, i) {
						taken[fmt.Sprintf("%v %v", typ, attributes[i].attr)] = true
					}
					if q.State() != from && q.State() != to {
						t.Errorf("%v from %v to %v: it is in %v", typ, from, to, q.State())
					}
				}
			}
		}
	}
	// What no state takes is known.
	never := map[ib.QPType]ib.AttrMask{
		ib.RC:           ib.AttrQKey | ib.AttrAltPath | ib.AttrCap,
		ib.UC:           ib.AttrQKey | ib.AttrAltPath | ib.AttrCap | ib.AttrTimeout | ib.AttrRetryCount | ib.AttrRNRRetry | ib.AttrMaxRdAtomic | ib.AttrMinRNRTimer | ib.AttrMaxDestRdAtomic,
		ib.XRCInitiator: ib.AttrQKey | ib.AttrAltPath | ib.AttrCap | ib.AttrMinRNRTimer | ib.AttrMaxDestRdAtomic,
		ib.XRCTarget:    ib.AttrQKey | ib.AttrAltPath | ib.AttrCap | ib.AttrRetryCount | ib.AttrRNRRetry | ib.AttrMaxRdAtomic,
		ib.UD:           ^(ib.AttrCurState | ib.AttrEnableSQDNotify | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey | ib.AttrSQPSN | ib.AttrRateLimit),
		ib.GSI:          ^(ib.AttrCurState | ib.AttrEnableSQDNotify | ib.AttrPKeyIndex | ib.AttrQKey | ib.AttrSQPSN | ib.AttrRateLimit),
	}
	for typ, mask := range never {
		for i := range attributes {
			a := attributes[i].attr
			if got := taken[fmt.Sprintf("%v %v", typ, a)]; got == (mask&a != 0) {
				t.Errorf("%v: %v is taken somewhere: %v", typ, a, got)
			}
		}
	}
}

// walk tries one attribute on one change of state, and reports whether it was
// taken.
func walk(t *testing.T, q *QP, to ib.State, i int) bool {
	t.Helper()
	c := &attributes[i]
	before := q.Attr()
	a := goodAttr(to)
	a.CurState = before.State
	if c.set != nil {
		c.set(&a)
	}
	mask := ib.AttrState | c.attr
	if row := findTransition(before.State, to, q.Type()); row != nil {
		mask |= row.required
	}
	err := q.Modify(&a, mask)
	after := q.Attr()
	if err != nil {
		var m *ib.ModifyError
		if !errors.As(err, &m) || m.Err == nil || m.Attr == 0 && m.Err != ib.ErrTransition || m.Attr&^mask != 0 {
			t.Errorf("%v from %v to %v with %v: %v", q.Type(), before.State, to, c.attr, err)
		}
		if m.Err == ib.ErrAttrValue && m.Detail == "" {
			t.Errorf("no reason: %v", err)
		}
		if after != before {
			t.Errorf("%v from %v to %v with %v: refused, and %+v is now %+v", q.Type(), before.State, to, c.attr, before, after)
		}
		return false
	}
	if to == ib.StateReset {
		if after != (ib.Attr{}) {
			t.Errorf("%v: after RESET there is %+v", q.Type(), after)
		}
		return false
	}
	for j := range attributes {
		o := &attributes[j]
		if o.attr == ib.AttrPathMTU && !q.Connected() {
			continue // that of the port
		}
		if o.get == nil || mask&o.attr == 0 && (o.attr == ib.AttrRQPSN || o.attr == ib.AttrSQPSN) {
			continue
		}
		want := o.get(&before)
		if mask&o.attr != 0 {
			want = o.get(&a)
			if o.attr == ib.AttrQKey && q.Type() == ib.GSI {
				want = uint32(datagram.GSIQKey)
			}
		}
		if got := o.get(&after); got != want {
			t.Errorf("%v from %v to %v with %v: %v is %v, want %v", q.Type(), before.State, to, c.attr, o.attr, got, want)
		}
	}
	return true
}

// Migration: the state is MIGRATED and nothing else, and an alternate path is
// refused by name (IBTA 17.2.8; there is none on RoCE).
func TestNoMigration(t *testing.T) {
	t.Parallel()
	q, _ := newOfType(t, ib.RC)
	for s := range ib.MigState(4) {
		err := q.Modify(&ib.Attr{PathMigState: s}, ib.AttrPathMigState)
		if (err == nil) != (s == ib.MigMigrated) {
			t.Errorf("%v: %v", s, err)
		}
		if err != nil && err.Error() != "RTS to RTS: attribute has a bad value: PATH_MIG_STATE: "+s.String()+": there is no path migration on RoCE, only MIGRATED" {
			t.Error(err)
		}
	}
	err := q.Modify(&ib.Attr{}, ib.AttrAltPath)
	if want := "RTS to RTS: attribute has a bad value: ALT_PATH: there is no path migration on RoCE: the queue pair has one path"; err == nil || err.Error() != want {
		t.Errorf("%v, want %v", err, want)
	}
	// An unknown hint is no error, another unknown bit is.
	if err := q.Modify(&ib.Attr{Access: ib.RemoteWrite | 1<<25}, ib.AttrAccess); err != nil {
		t.Error(err)
	}
	if err := q.Modify(&ib.Attr{Access: 1 << 10}, ib.AttrAccess); !errors.Is(err, ib.ErrAttrValue) {
		t.Error(err)
	}
}
