package hca

import (
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/transport"
)

// mute is a second link of an address at which nothing arrives: as when all
// packets were coalesced into buffers that belong to the first one.
type mute struct {
	transport.Link
	send   *sync.Mutex
	closed chan struct{}
}

func (m mute) Send(b *transport.TxBatch) error {
	m.send.Lock()
	defer m.send.Unlock()
	return m.Link.Send(b)
}

func (m mute) Wait() error                          { <-m.closed; return transport.ErrClosed }
func (m mute) Wake()                                {}
func (m mute) Recv(*transport.RxBatch) (int, error) { return 0, nil }
func (m mute) Close() error                         { close(m.closed); return nil }

// locked serialises Send with that of mute.
type locked struct {
	transport.Link
	send *sync.Mutex
}

func (l locked) Send(b *transport.TxBatch) error {
	l.send.Lock()
	defer l.send.Unlock()
	return l.Link.Send(b)
}

// A packet that arrives at the wrong shard is handed over to the right one.
func TestStraysAreHandedOver(t *testing.T) {
	t.Parallel()
	la, lb := fabric.Pair(testAddrA, testAddrB)
	var mu sync.Mutex
	a := &host{t: t, dev: New(Config{}, locked{la, &mu}, mute{la, &mu, make(chan struct{})})}
	b := &host{t: t, dev: New(Config{}, lb)}
	a.equip()
	b.equip()
	const qps = 20
	odd := 0
	made := 0
	for ; made < qps || odd == 0 || odd == made; made++ { // QPNs are random: of both shards
		qa, qb := a.newQP(), b.newQP()
		odd += int(qa.QPN()) & 1
		a.connect(qa, testAddrB, qb.QPN())
		b.connect(qb, testAddrA, qa.QPN())
		a.write(qa, b, 3000)
		b.write(qb, a, 3000)
	}
	a.waitOK(made)
	b.waitOK(made)
	if drops := a.dev.Stats().Drops; drops["unknown_qpn"] != 0 {
		t.Errorf("packets did not find their queue pair: %v", drops)
	}
}
