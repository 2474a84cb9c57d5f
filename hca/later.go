package hca

// Later has f called when the lock of a shard is given up, on the goroutine
// that held it. It may be called with any lock held. A goroutine that holds no
// shard's lock calls f itself instead.
func (d *Device) Later(f func()) { d.handlers.add(later(f)) }

type later func()

func (f later) run() { f() }
