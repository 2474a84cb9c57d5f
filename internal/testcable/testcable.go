// Package testcable is the cable of a device in the hands of a test, as of an
// attacker on the path: it keeps what was sent, and has packets arrive that the
// test has made up.
package testcable

import (
	"bytes"
	"sync"

	"github.com/gosoftroce/rocev2/transport"
)

// Cable wraps a link.
type Cable struct {
	transport.Wrapper

	mu     sync.Mutex
	sent   [][]byte
	forged []transport.RxPacket
}

// New wraps a link.
func New(l transport.Link) *Cable { return &Cable{Wrapper: transport.Wrapper{Link: l}} }

// Send sends packets, and keeps them.
func (c *Cable) Send(b *transport.TxBatch) error {
	err := c.Link.Send(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range b.Len() {
		data, _ := b.Sealed(i)
		c.sent = append(c.sent, bytes.Clone(data))
	}
	return err
}

// Recv receives packets, and those of Arrive, as many as fit.
func (c *Cable) Recv(b *transport.RxBatch) (int, error) {
	if _, err := c.Link.Recv(b); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.forged) > 0 && b.AppendCopy(c.forged[0]) {
		c.forged = c.forged[1:]
	}
	if len(c.forged) > 0 {
		c.Wake()
	}
	return b.Len(), nil
}

// Arrive has packets arrive.
func (c *Cable) Arrive(packets ...transport.RxPacket) {
	c.mu.Lock()
	c.forged = append(c.forged, packets...)
	c.mu.Unlock()
	c.Wake()
}

// Take returns what was sent since the last call, packet by packet, as it was
// on the wire: the payloads of UDP.
func (c *Cable) Take() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.sent
	c.sent = nil
	return sent
}
