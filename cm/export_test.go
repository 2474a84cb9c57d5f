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
