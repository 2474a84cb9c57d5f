package qp

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// TestTransitionTable compares the whole table, every pair of states for every
// service, with a second notation of it: required and optional bits as numbers
// of ibv_qp_attr_mask (IBTA 10.3.1, 11.2.5.2).
func TestTransitionTable(t *testing.T) {
	t.Parallel()
	type bits struct{ required, optional ib.AttrMask }
	type key struct {
		s        ib.QPType
		from, to ib.State
	}
	want := map[key]bits{}
	services := []ib.QPType{ib.RC, ib.UC, ib.UD, ib.GSI, ib.XRCInitiator, ib.XRCTarget}
	for _, s := range services {
		for from := range ib.NumStates {
			want[key{s, from, ib.StateReset}] = bits{}
			if from != ib.StateReset {
				want[key{s, from, ib.StateErr}] = bits{}
			}
		}
		want[key{s, ib.StateRTS, ib.StateSQD}] = bits{0, 0x4}
	}
	rc, uc, ud, ini, tgt := services[0], services[1], services[2], services[4], services[5]
	want[key{ini, ib.StateInit, ib.StateRTR}] = bits{0x80 | 0x100 | 0x100000 | 0x1000, 0x4000 | 0x8 | 0x10}
	want[key{tgt, ib.StateInit, ib.StateRTR}] = bits{0x80 | 0x100 | 0x100000 | 0x1000 | 0x20000 | 0x8000, 0x4000 | 0x8 | 0x10}
	want[key{ini, ib.StateRTR, ib.StateRTS}] = bits{0x200 | 0x400 | 0x800 | 0x10000 | 0x2000, 0x2 | 0x4000 | 0x8 | 0x40000}
	want[key{tgt, ib.StateRTR, ib.StateRTS}] = bits{0x200 | 0x10000, 0x2 | 0x4000 | 0x8 | 0x8000 | 0x40000}
	for _, from := range []ib.State{ib.StateRTS, ib.StateSQD} {
		want[key{ini, from, ib.StateRTS}] = bits{0, 0x2 | 0x8 | 0x4000 | 0x40000}
		want[key{tgt, from, ib.StateRTS}] = bits{0, 0x2 | 0x8 | 0x4000 | 0x40000 | 0x8000}
	}
	want[key{ini, ib.StateSQD, ib.StateSQD}] = bits{0, 0x20 | 0x80 | 0x200 | 0x400 | 0x800 | 0x2000 | 0x4000 | 0x8 | 0x10 | 0x40000}
	want[key{tgt, ib.StateSQD, ib.StateSQD}] = bits{0, 0x20 | 0x80 | 0x200 | 0x20000 | 0x4000 | 0x8 | 0x10 | 0x8000 | 0x40000}
	for _, s := range []ib.QPType{rc, uc, ini, tgt} {
		want[key{s, ib.StateReset, ib.StateInit}] = bits{0x38, 0}
		want[key{s, ib.StateInit, ib.StateInit}] = bits{0, 0x38}
	}
	want[key{ud, ib.StateReset, ib.StateInit}] = bits{0x70, 0}
	want[key{ud, ib.StateInit, ib.StateInit}] = bits{0, 0x70}
	want[key{rc, ib.StateInit, ib.StateRTR}] = bits{0x80 | 0x100 | 0x100000 | 0x1000 | 0x20000 | 0x8000, 0x4000 | 0x8 | 0x10}
	want[key{uc, ib.StateInit, ib.StateRTR}] = bits{0x80 | 0x100 | 0x100000 | 0x1000, 0x4000 | 0x8 | 0x10}
	want[key{ud, ib.StateInit, ib.StateRTR}] = bits{0, 0x50}
	want[key{rc, ib.StateRTR, ib.StateRTS}] = bits{0x200 | 0x400 | 0x800 | 0x10000 | 0x2000, 0x2 | 0x4000 | 0x8 | 0x8000 | 0x40000}
	want[key{uc, ib.StateRTR, ib.StateRTS}] = bits{0x10000, 0x2 | 0x4000 | 0x8 | 0x40000}
	want[key{ud, ib.StateRTR, ib.StateRTS}] = bits{0x10000, 0x42}
	for _, from := range []ib.State{ib.StateRTS, ib.StateSQD} {
		want[key{rc, from, ib.StateRTS}] = bits{0, 0x2 | 0x8 | 0x4000 | 0x40000 | 0x8000}
		want[key{uc, from, ib.StateRTS}] = bits{0, 0x2 | 0x8 | 0x4000 | 0x40000}
		want[key{ud, from, ib.StateRTS}] = bits{0, 0x42}
	}
	want[key{rc, ib.StateSQD, ib.StateSQD}] = bits{0, 0x20 | 0x80 | 0x200 | 0x400 | 0x800 | 0x2000 | 0x20000 | 0x4000 | 0x8 | 0x10 |
		0x8000 | 0x40000}
	want[key{uc, ib.StateSQD, ib.StateSQD}] = bits{0, 0x80 | 0x4000 | 0x8 | 0x10 | 0x40000}
	want[key{ud, ib.StateSQD, ib.StateSQD}] = bits{0, 0x50}
	want[key{uc, ib.StateSQE, ib.StateRTS}] = bits{0, 0x2 | 0x8}
	want[key{ud, ib.StateSQE, ib.StateRTS}] = bits{0, 0x42}
	// RATE_LIMIT of every service, where the table of Linux has it for raw
	// packets alone: on every way to RTS, and in SQD.
	for k, w := range want {
		if k.to == ib.StateRTS || k.from == ib.StateSQD && k.to == ib.StateSQD {
			w.optional |= 0x2000000
			want[k] = w
		}
	}
	for k, w := range want { // as UD, without a port
		if k.s == ud {
			k.s = ib.GSI
			want[k] = bits{w.required &^ 0x20, w.optional &^ 0x20}
		}
	}
	for _, s := range services {
		for from := range ib.NumStates {
			for to := range ib.NumStates {
				w, ok := want[key{s, from, to}]
				checkPair(t, s, from, to, w.required, w.optional, ok)
			}
		}
	}
}

func checkPair(t *testing.T, s ib.QPType, from, to ib.State, required, optional ib.AttrMask, ok bool) {
	t.Helper()
	check := func(mask ib.AttrMask, want error) {
		t.Helper()
		err := checkTransition(from, to, s, mask)
		if !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Errorf("%v %v to %v with %v: %v, want %v", s, from, to, mask, err, want)
		}
	}
	if !ok {
		check(ib.AttrState, ib.ErrTransition)
		return
	}
	check(ib.AttrState|required, nil)
	check(required|optional, nil)
	for i := range 32 {
		bit := ib.AttrMask(1) << i
		switch {
		case bit&required != 0:
			check((ib.AttrState|required)&^bit, ib.ErrAttrMissing)
		case bit&(optional|ib.AttrState) != 0:
			check(ib.AttrState|required|bit, nil)
		default:
			check(ib.AttrState|required|bit, ib.ErrAttrNotAllowed)
		}
	}
}

// TestModifyErrors: an error says which attribute is wrong, and changes nothing
// (IBTA 11.2.5.2).
func TestModifyErrors(t *testing.T) {
	t.Parallel()
	e := newEnd(t, 1, pairConfig{mem: 4096})
	good := ib.Attr{State: ib.StateInit, Port: 1, Access: testAccess}
	try := func(a ib.Attr, mask ib.AttrMask, want error, text string) {
		t.Helper()
		before := e.State()
		err := e.Modify(&a, mask)
		var m *ib.ModifyError
		if !errors.Is(err, want) || !errors.As(err, &m) || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %v naming %q", err, want, text)
		}
		if e.State() != before {
			t.Errorf("state changed to %v", e.State())
		}
	}
	try(ib.Attr{State: ib.StateRTS}, ib.AttrState, ib.ErrTransition, "RESET to RTS")
	try(good, ib.AttrState|ib.AttrPort, ib.ErrAttrMissing, "ACCESS_FLAGS, PKEY_INDEX")
	try(good, initMask|ib.AttrPathMTU, ib.ErrAttrNotAllowed, "PATH_MTU")
	bad := good
	bad.PKeyIndex = 1
	try(bad, initMask, ib.ErrAttrValue, "PKEY_INDEX")
	bad = good
	bad.Port = 2
	try(bad, initMask, ib.ErrAttrValue, "PORT")
	must(t, e.Modify(&good, initMask))

	rtr := ib.Attr{State: ib.StateRTR, PathMTU: rocev2.MTU256, MinRNRTimer: 31, MaxDestRdAtomic: 128,
		AV: ib.AddressVector{DGID: netip.MustParseAddr("::ffff:10.0.0.9")}, DestQPN: 5}
	for _, c := range []struct {
		change func(*ib.Attr)
		attr   string
	}{
		{func(a *ib.Attr) { a.PathMTU = 6 }, "PATH_MTU"},
		{func(a *ib.Attr) { a.PathMTU = 0 }, "PATH_MTU"},
		{func(a *ib.Attr) { a.MinRNRTimer = 32 }, "MIN_RNR_TIMER"},
		{func(a *ib.Attr) { a.MaxDestRdAtomic = 129 }, "MAX_DEST_RD_ATOMIC"},
		{func(a *ib.Attr) { a.AV.DGID = netip.Addr{} }, "AV"},
		{func(a *ib.Attr) { a.DestQPN = 1 << 24 }, "DEST_QPN"},
		{func(a *ib.Attr) { a.DestQPN = 0 }, "DEST_QPN: no connected queue pair"},
		{func(a *ib.Attr) { a.DestQPN = rocev2.MulticastQPN }, "DEST_QPN: no connected queue pair"},
	} {
		a := rtr
		c.change(&a)
		try(a, rtrMask, ib.ErrAttrValue, c.attr)
	}
	try(rtr, rtrMask|ib.AttrAltPath, ib.ErrAttrValue, "ALT_PATH")
	must(t, e.Modify(&rtr, rtrMask))
	if e.conn.Peer != netip.MustParseAddr("10.0.0.9") {
		t.Errorf("peer is %v", e.conn.Peer)
	}
	rts := ib.Attr{State: ib.StateRTS, CurState: ib.StateRTS, Timeout: 31, RetryCount: 7, RNRRetry: 7, SQPSN: 0xffabcdef, MaxRdAtomic: 128}
	try(rts, rtsMask|ib.AttrCurState, ib.ErrCurState, "RTS")
	for _, c := range []struct {
		change func(*ib.Attr)
		attr   string
	}{
		{func(a *ib.Attr) { a.Timeout = 32 }, "TIMEOUT"},
		{func(a *ib.Attr) { a.RetryCount = 8 }, "RETRY_CNT"},
		{func(a *ib.Attr) { a.RNRRetry = 8 }, "RNR_RETRY"},
		{func(a *ib.Attr) { a.MaxRdAtomic = 129 }, "MAX_QP_RD_ATOMIC"},
	} {
		a := rts
		c.change(&a)
		try(a, rtsMask, ib.ErrAttrValue, c.attr)
	}
	rts.CurState = ib.StateRTR
	must(t, e.Modify(&rts, rtsMask|ib.AttrCurState))
	if got := e.Attr(); got.SQPSN != 0xabcdef || got.State != ib.StateRTS || got.Timeout != 31 {
		t.Errorf("attributes %+v", got)
	}
}

// TestNewErrors: a configuration that is out of range is refused (IBTA
// 11.2.5.1).
func TestNewErrors(t *testing.T) {
	t.Parallel()
	table := memreg.NewTable(func() uint32 { return 1 })
	good := Config{Type: ib.RC, Memory: table, PD: table.AllocPD(), SendCQ: &testCQ{}, RecvCQ: &testCQ{}}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		change func(*Config)
		want   error
		text   string
	}{
		{func(c *Config) { c.Type = 77 }, ErrService, "77"},
		{func(c *Config) { c.Type = ib.UD }, ErrConfig, "PortMTU"},
		{func(c *Config) { c.QPN = 1 << 24 }, ErrConfig, "QPN"},
		{func(c *Config) { c.PD = nil }, ErrConfig, "protection domain"},
		{func(c *Config) { c.SendCQ = nil }, ErrConfig, "sink"},
		{func(c *Config) { c.MaxSendWR = ib.MaxWR + 1 }, ErrConfig, "MaxSendWR"},
		{func(c *Config) { c.MaxRecvSGE = -1 }, ErrConfig, "MaxRecvSGE"},
		{func(c *Config) { c.Window.MaxPSNs = 1 << 23 }, ErrConfig, "MaxPSNs"},
	} {
		bad := good
		c.change(&bad)
		if _, err := New(bad); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("got %v, want %v naming %q", err, c.want, c.text)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{ib.StateSQD.String(), "SQD"}, {ib.State(9).String(), "state 9"}, {(ib.AttrState | ib.AttrRateLimit).String(), "STATE, RATE_LIMIT"},
		{ib.StatusRNRRetryExcErr.String(), "RNR_RETRY_EXC_ERR"}, {ib.Status(13).String(), "RNR_RETRY_EXC_ERR"},
		{ib.Status(21).String(), "GENERAL_ERR"}, {ib.Status(99).String(), "status 99"}, {ib.OpFetchAdd.String(), "ATOMIC_FETCH_AND_ADD"},
		{ib.WCRecvWriteImm.String(), "RECV_RDMA_WITH_IMM"}, {DropBadResponse.String(), "bad_response"}, {Drop(200).String(), "drop 200"},
		{ib.EventSQDrained.String(), "SQ_DRAINED"}, {ib.AttrMask(1 << 30).String(), "bit 30"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
