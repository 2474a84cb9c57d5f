package verbs_test

import (
	"sync/atomic"
	"testing"

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
