package verbs_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestAddressHandles: create, query, modify and destroy (IBTA 11.2.2), and what
// an address vector cannot be.
func TestAddressHandles(t *testing.T) {
	t.Parallel()
	a, b := newDatagramPair(t, verbs.Config{})
	ah := a.to(b)
	good := verbs.AddressVector{DGID: addrB, TrafficClass: 0x68, HopLimit: 3, FlowLabel: 5, SL: 15, StaticRate: 2}
	check(t, ah.Modify(good))
	if q := ah.Query(); q != good {
		t.Errorf("%+v", q)
	}
	for _, c := range []struct {
		change func(*verbs.AddressVector)
		text   string
	}{
		{func(v *verbs.AddressVector) { v.DGID = netip.Addr{} }, "DGID is not set"},
		{func(v *verbs.AddressVector) { v.DGID = parseAddr("0.0.0.0") }, "not an address of a host"},
		{func(v *verbs.AddressVector) { v.DGID = parseAddr("2001:db8::1") }, "different IP versions"},
		{func(v *verbs.AddressVector) { v.DGID = parseAddr("ff02::1") }, "multicast"},
		{func(v *verbs.AddressVector) { v.SL = 16 }, "SL is 16"},
		{func(v *verbs.AddressVector) { v.FlowLabel = 1 << 20 }, "20 bits"},
		{func(v *verbs.AddressVector) { v.SGIDIndex = 1 }, "SGIDIndex"},
		{func(v *verbs.AddressVector) { v.SrcPort = 4791 }, "SrcPort is 4791"},
	} {
		bad := good
		c.change(&bad)
		_, err := a.pd.CreateAH(bad)
		if err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("create with %+v: %v, want %q", bad, err, c.text)
		}
		if err := ah.Modify(bad); err == nil || ah.Query() != good {
			t.Errorf("modify to %+v: %v", bad, err)
		}
	}
	for _, group := range []string{"239.1.2.3", "::ffff:239.1.2.3"} {
		h, err := a.pd.CreateAH(verbs.AddressVector{DGID: parseAddr(group)})
		check(t, err)
		if q := h.Query(); q.DGID != parseAddr("239.1.2.3") {
			t.Errorf("group %v", q.DGID)
		}
	}
	check(t, ah.Close())
	if err := ah.Modify(good); !errors.Is(err, verbs.ErrClosed) || ah.Query() != (verbs.AddressVector{}) {
		t.Errorf("closed: %v, %+v", err, ah.Query())
	}
	// The domain takes its handles along.
	ah = a.to(b)
	check(t, a.pd.Close())
	if ah.Query().DGID.IsValid() {
		t.Error("the handle of a closed domain is open")
	}
	if _, err := a.pd.CreateAH(good); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("create in a closed domain: %v", err)
	}
}

// TestAddressHandleLinkLocal: the zone of a link-local destination is the
// device's own, whatever the handle says.
func TestAddressHandleLinkLocal(t *testing.T) {
	t.Parallel()
	la, lb := fabric.Pair(parseAddr("fe80::1%eth7"), parseAddr("fe80::2%eth7"))
	for _, l := range []verbs.Link{la, lb} {
		dev, err := verbs.OpenLink(l, verbs.Config{})
		check(t, err)
		t.Cleanup(func() { check(t, dev.Close()) })
		pd, err := dev.AllocPD()
		check(t, err)
		ah, err := pd.CreateAH(verbs.AddressVector{DGID: parseAddr("fe80::2%wlan3")})
		check(t, err)
		if got := ah.Query().DGID; got != parseAddr("fe80::2%eth7") {
			t.Errorf("destination %v", got)
		}
	}
}

// TestDatagramMarks: the answer to a marked datagram is ECN-capable, not marked
// itself (RFC 3168).
func TestDatagramMarks(t *testing.T) {
	t.Parallel()
	a, b := newDatagramPair(t, verbs.Config{})
	for class, want := range map[uint8]uint8{0: 0, 0x6a: 0x6a, 0x6b: 0x6a, 1: 1} {
		b.recv(1, 0, 100)
		wr := a.datagram(b, 2, 8)
		check(t, wr.AH.Modify(verbs.AddressVector{DGID: addrB, TrafficClass: class}))
		a.post(wr)
		a.waitOK(2)
		wc := b.waitOK(1)
		if h, err := verbs.ParseGRH(b.mr.Bytes()); err != nil || h.TrafficClass != class {
			t.Errorf("class %#x arrives as %+v, %v", class, h, err)
		}
		back, err := b.pd.AHFromWC(wc, b.mr.Bytes())
		check(t, err)
		if got := back.Query().TrafficClass; got != want {
			t.Errorf("class %#x is answered with %#x, want %#x", class, got, want)
		}
	}
}

// A batch is posted whole or not at all, also beside the Close of its handle.
func TestBatchBesideCloseOfItsHandle(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 4096)
	q := a.newQP(verbs.QPConfig{Type: verbs.UD, MaxSendWR: 256})
	check(t, q.Activate(1))
	for range 2000 {
		ah, err := a.pd.CreateAH(verbs.AddressVector{DGID: addrB})
		check(t, err)
		b := q.NewBatch()
		for range 100 {
			b.Send().Inline([]byte{1}).To(ah, 77, 1)
		}
		b.Signaled()
		before := q.Stats().SendPosted
		closing, closed := make(chan struct{}), make(chan struct{})
		go func() {
			close(closing)
			_ = ah.Close()
			close(closed)
		}()
		<-closing
		err = b.Post()
		want := uint64(100)
		if err != nil {
			want = 0
		}
		if got := q.Stats().SendPosted - before; got != want {
			t.Fatalf("%d of 100 requests were posted, and the error is %v", got, err)
		}
		if err == nil {
			a.waitOK(0)
		}
		<-closed
	}
}
