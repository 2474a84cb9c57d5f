package shm

import "github.com/gosoftroce/rocev2/rocev2"

// meta is what the descriptor of a run says beside where it lies.
type meta struct {
	segment      int // bytes of each packet but the last, its ICRC included
	flags        uint32
	srcPort      uint16
	trafficClass uint8
	hopLimit     uint8
	flowLabel    uint32
}

// producer writes one direction of the memory. What the consumer says is
// checked: it may be broken.
type producer struct {
	ring half
	next uint32 // descriptor to be written
	head uint32 // the consumer has given back all before

	// What lies in the data, in bytes that were ever written: only this
	// side knows, so the consumer cannot have it overwrite anything.
	tail, freed uint32
	ends        [descCount]uint32 // tail after each descriptor
}

func newProducer(r half) *producer { return &producer{ring: r} }

// errBroken says that the peer has written what it cannot have meant.
type errBroken string

func (e errBroken) Error() string { return "shared memory: " + string(e) }

// refresh reads what the consumer has given back. It reports whether that was
// anything.
func (p *producer) refresh() (moved bool, err error) {
	head := p.ring.head().Load()
	if head == p.head {
		return false, nil
	}
	if head-p.head > p.next-p.head {
		return false, errBroken("the peer has given back what it never got")
	}
	p.head = head
	p.freed = p.ends[(head-1)%descCount]
	return true, nil
}

// nearLen bytes, or nearDescs descriptors, are how far a sender gets ahead of a
// receiver that keeps up: so much stays in the caches of both processors.
const (
	nearLen   = 512 << 10
	nearDescs = descCount / 2
)

// ahead reports whether the consumer lags by more than that, as far as is
// known.
func (p *producer) ahead() bool { return p.backlog() > nearLen || p.next-p.head > nearDescs }

// backlog is how many bytes the consumer has not given back, as far as is
// known.
func (p *producer) backlog() int { return int(p.tail - p.freed) }

// room finds a place for n bytes in one piece. Without one it reports false,
// unless refresh finds more.
func (p *producer) room(n int) (at uint32, ok bool) {
	if p.next-p.head == descCount {
		return 0, false
	}
	size := uint32(n)
	at = p.tail
	pos := at % dataLen
	if pos+size > dataLen {
		at += dataLen - pos
	}
	return at, at+size-p.freed <= dataLen
}

// put writes a run and shows it to the consumer. It reports false if there is
// no room, and writes nothing then.
func (p *producer) put(run []byte, m meta) bool {
	n := len(run)
	d := p.ring.desc(p.next)
	if body := n - rocev2.ICRCLen; m.segment == n && body <= inlineLen {
		if p.next-p.head == descCount {
			return false
		}
		m.flags |= flagInline
		copy(d[inlineAt:], run[:body])
	} else {
		at, ok := p.room(n)
		if !ok {
			return false
		}
		pos := at % dataLen
		copy(p.ring.data()[pos:], run)
		p.tail = at + uint32(n)
		put(d, wordPlace, pos)
	}
	p.ends[p.next%descCount] = p.tail
	put(d, wordLength, uint32(n))
	put(d, wordSegment, uint32(m.segment)|m.flags<<16)
	put(d, wordPath, uint32(m.srcPort)|uint32(m.trafficClass)<<16|uint32(m.hopLimit)<<24)
	put(d, wordLabel, m.flowLabel)
	p.ring.state(p.next).Store(lap(p.next))
	p.next++
	return true
}

// wanted reports whether the consumer sleeps and is to be woken, once for each
// time that it goes to sleep.
func (p *producer) wanted() bool {
	a := p.ring.armed()
	return a.Load() != 0 && a.Swap(0) != 0
}
