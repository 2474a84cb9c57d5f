package cm

import (
	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/rdma/cm/agent"
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

// Held returns how many numbers of queue pairs are held on a device.
func Held(dev *verbs.Device) int { return verbs.HCA(dev).Held() }

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
