package cm

import (
	"context"
	"crypto/tls"
	"net/netip"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// BareListener returns a listener of no device, and what has a request come for
// it, and what ends it, for tests.
func BareListener(tasks task.Runner) (l *Listener, arrive, end func()) {
	m := &manager{tasks: tasks, closed: true, gone: true, agent: agent.New(agent.Config{Random: func() uint32 { return 1 }})}
	l = &Listener{m: m, ready: tasks.NewBell()}
	return l, func() {
			m.lock()
			defer m.unlock()
			r := new(Request)
			r.queued.Value = r
			l.queue.PushBack(&r.queued)
			l.ready.Ring()
		}, func() {
			m.lock()
			defer m.unlock()
			l.over()
		}
}

// IDs returns how many IDs the manager of a device has, for tests.
func IDs(dev *verbs.Device) int {
	m := existingManager(dev)
	if m == nil {
		return 0
	}
	m.lock()
	defer m.unlock()
	return len(m.ids)
}

// Acquaintances returns of how many peers the manager of a device knows what
// they are.
func Acquaintances(dev *verbs.Device) int {
	m := existingManager(dev)
	if m == nil {
		return 0
	}
	m.lock()
	defer m.unlock()
	return len(m.peers.of)
}

// Held returns how many numbers of queue pairs are held on a device; 0 after
// its close.
func Held(dev *verbs.Device) int {
	if existingManager(dev) == nil {
		return 0
	}
	return verbs.HCA(dev).Held()
}

// Controls returns how many control connections a device has that carry
// messages.
func Controls(dev *verbs.Device) int {
	m := existingManager(dev)
	if m == nil {
		return 0
	}
	m.lock()
	defer m.unlock()
	return len(m.controls.of)
}

// MostControls is how many handshakes there are at once.
const MostControls = mostControls

// Numbers returns the communication ID of a secured connection on its side, and
// that of its control connection with the number of its queue pair.
func Numbers(c *Conn) (id, control mad.CommID, number verbs.QPN) {
	return mad.CommID(c.id), mad.CommID(c.control.conn.id), c.control.qp.QPN()
}

// Peer is a control connection in the hands of a test.
type Peer struct{ c *control }

// CallControl makes a control connection to a listener.
func CallControl(ctx context.Context, dev *verbs.Device, to netip.AddrPort, config *tls.Config) (*Peer, error) {
	m, err := managerOf(dev)
	if err != nil {
		return nil, err
	}
	call := calling{m: m, local: Addr{netip.AddrPortFrom(dev.Addr(), 1), TCP}, remote: Addr{to, TCP}, cfg: &DialConfig{TLS: config}}
	c, err := call.control(ctx)
	if err != nil {
		return nil, err
	}
	c.ctx = ctx
	return &Peer{c}, nil
}

// Send sends a message over it, whatever it is. It reports false if that has
// ended.
func (p *Peer) Send(b []byte) bool {
	slot, err := p.c.room()
	return err == nil && p.c.post(slot, copy(p.c.slot(slot), b)) == nil
}

// Dial asks a listener for a connection over it.
func (p *Peer) Dial(ctx context.Context, qp *verbs.QP, to netip.AddrPort) (*Conn, error) {
	d := &dialing{qp: qp, peer: to, control: p.c, cfg: &DialConfig{TLS: &tls.Config{}}}
	return d.c, d.dial(ctx)
}

// Close ends it.
func (p *Peer) Close() { p.c.letGo() }
