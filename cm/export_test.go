package cm

import "github.com/gosoftroce/rocev2/verbs"

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
