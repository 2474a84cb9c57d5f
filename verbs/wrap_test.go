package verbs_test

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// countingLink counts the batches that are sent.
type countingLink struct {
	transport.Wrapper
	sent *atomic.Int64
}

func (l countingLink) Send(b *transport.TxBatch) error {
	l.sent.Add(1)
	return l.Link.Send(b)
}

// Config.Wrap wraps every link, and what passes goes through the wrappers.
func TestWrap(t *testing.T) {
	t.Parallel()
	var links, sent atomic.Int64
	for _, shards := range []int{1, 2} {
		links.Store(0)
		sent.Store(0)
		a := loopbackSide(t, verbs.Config{Shards: shards, Wrap: func(l verbs.Link) verbs.Link {
			links.Add(1)
			return countingLink{transport.Wrapper{Link: l}, &sent}
		}}, 300000)
		b := loopbackSide(t, verbs.Config{}, 300000)
		qa, qb := a.newQP(verbs.QPConfig{}), b.newQP(verbs.QPConfig{})
		connect(t, qa, qb)
		sendBoth(t, a, b, qa)
		if links.Load() != int64(shards) || sent.Load() == 0 {
			t.Errorf("%d links of %d wrapped, %d batches", links.Load(), shards, sent.Load())
		}
	}
}

// sealedLink counts the packets that come sealed, and others.
type sealedLink struct {
	transport.Wrapper
	sealed, clear *atomic.Int64
}

func (l sealedLink) Recv(b *transport.RxBatch) (int, error) {
	n, err := l.Link.Recv(b)
	for _, p := range b.Packets() {
		if transport.IsSealed(p.Data) {
			l.sealed.Add(1)
		} else {
			l.clear.Add(1)
		}
	}
	return n, err
}

// TestWrapBelowSeals: the wrappers of a secured device have what is on the
// wire.
func TestWrapBelowSeals(t *testing.T) {
	t.Parallel()
	tls, err := secure.PSK(bytes.Repeat([]byte{7}, secure.MinPSK))
	check(t, err)
	var sealed, clear atomic.Int64
	cfg := verbs.Config{Shards: 2, Secure: &verbs.Secure{TLS: tls}, Wrap: func(l verbs.Link) verbs.Link {
		return sealedLink{transport.Wrapper{Link: l}, &sealed, &clear}
	}}
	a, b := loopbackSide(t, cfg, 300000), loopbackSide(t, cfg, 300000)
	qa, qb := a.newQP(verbs.QPConfig{}), b.newQP(verbs.QPConfig{})
	connect(t, qa, qb)
	sendBoth(t, a, b, qa)
	if sealed.Load() == 0 || clear.Load() != 0 {
		t.Errorf("the wrappers have had %d packets sealed, and %d in clear", sealed.Load(), clear.Load())
	}
	if c, secured := a.dev.GuardCounters(); !secured || c.Opened == 0 {
		t.Errorf("%v, %+v", secured, c)
	}
}
