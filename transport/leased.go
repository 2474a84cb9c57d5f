package transport

// Lease is the share that a link has of an address and port whose sockets
// another process owns. It receives what is for the QPNs that are Slot to
// Slot+n-1 modulo Slots, where n is the number of links of the device.
type Lease struct {
	Slot   int // of the first link of the device; a multiple of their number
	Slots  int // a power of two
	MaxQPs int // queue pairs that the device may have; 0 = no bound
}

// Leased is a Link that has a part of a port only. A link that wraps another
// one passes the calls on, as Wrapper does. All may be called beside every
// other method.
type Leased interface {
	// Lease says which part. It reports false if the link has the whole
	// port.
	Lease() (Lease, bool)

	// ReserveService has the management datagrams that ask for a service
	// come to this link: those whose service ID is id in the bits of mask.
	// It waits for the owner of the port. The error says which process has
	// the service.
	ReserveService(id, mask uint64) error

	// ReleaseService takes back what ReserveService has done.
	ReleaseService(id, mask uint64)

	// HandOver gives a packet to the link that the QPN in it belongs to,
	// or loses it. It keeps nothing of it.
	HandOver(p *RxPacket)

	// TellUse has the link tell what the device has been used for, when the
	// owner of the port asks for it, and at the end.
	TellUse(use func() Use)
}

// LeaseOf returns the part of a port that l has, and false if it has all of
// it.
func LeaseOf(l Link) (Lease, bool) {
	if k, ok := l.(Leased); ok {
		return k.Lease()
	}
	return Lease{}, false
}

// ReserveService asks l for a service, see Leased. A link that has the whole
// port has all services.
func ReserveService(l Link, id, mask uint64) error {
	if k, ok := l.(Leased); ok {
		return k.ReserveService(id, mask)
	}
	return nil
}

// ReleaseService takes back what ReserveService has done.
func ReleaseService(l Link, id, mask uint64) {
	if k, ok := l.(Leased); ok {
		k.ReleaseService(id, mask)
	}
}

// HandOver gives a packet that came astray to where it belongs, see Leased.
func HandOver(l Link, p *RxPacket) {
	if k, ok := l.(Leased); ok {
		k.HandOver(p)
	}
}

// TellUse has l tell what its device has been used for, see Leased.
func TellUse(l Link, use func() Use) {
	if k, ok := l.(Leased); ok {
		k.TellUse(use)
	}
}
