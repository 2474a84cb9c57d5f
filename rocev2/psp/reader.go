package psp

// Reader opens the packets of an association whose keys are those of a Chain,
// for one that only looks on, as at a capture. It follows the generations as
// their packets come: the first packet is of one of the first 128 keys, and no
// 64 generations are missing after it. Packets of the 8 generations before the
// newest one open, too: more than receivers take. Whether a packet comes again
// it does not look at. A packet that is forged costs what an honest one does,
// whatever its generation: the secrets of at most 128 generations are kept. It
// is not safe for concurrent use.
type Reader struct {
	first  uint32   // SPI of the first key
	chains []*Chain // at the oldest generation that opens, and at those after it
	opened bool     // a packet was
	newest uint64   // generation that was opened
	keys   [2]readerKey
}

const (
	late    = 8   // generations before the newest that open
	guessed = 128 // generations, of which the first packet is of one
)

// readerKey is a key that was derived last, or before that.
type readerKey struct {
	generation uint64
	key        *Key
}

// NewReader returns a Reader of an association, with the SPI of its first key,
// and a key of KeyLen bytes, of which it keeps no copy.
func NewReader(v Version, first uint32, key []byte) (*Reader, error) {
	c, err := NewChain(v, key)
	if err != nil {
		return nil, err
	}
	return &Reader{first: first, chains: []*Chain{c}}, nil
}

// Open does what Key.Open does, with the key of the packet's SPI. It is ErrICV
// where there is none.
func (r *Reader) Open(dst, packet []byte) (h Header, plain []byte, err error) {
	h, _, err = Parse(packet)
	if err != nil {
		return h, dst, err
	}
	generation, ok := r.generation(h.SPI)
	if !ok {
		return h, dst, ErrICV
	}
	h, plain, err = r.key(generation).Open(dst, packet)
	if err == nil {
		r.opened, r.newest = true, max(r.newest, generation)
		for r.oldest()+late < r.newest {
			r.chains[0].Erase()
			r.chains = r.chains[1:]
		}
	}
	return h, plain, err
}

// Followed reports whether the reader knows of so many generations that a new
// one would take their SPIs for those of others.
func (r *Reader) Followed() bool { return r.newest >= guessed }

// generation returns that of the key of an SPI, and reports false if the SPI
// has none that opens.
func (r *Reader) generation(spi uint32) (uint64, bool) {
	if Number(spi) != Number(r.first) || (spi^r.first)&SecondMaster != 0 {
		return 0, false
	}
	if !r.opened {
		return uint64(Between(spi, r.first) & (guessed - 1)), true
	}
	g := int64(r.newest) + int64(Between(spi, Later(r.first, r.newest)))
	return uint64(g), g >= int64(r.oldest())
}

// oldest returns the oldest generation that opens.
func (r *Reader) oldest() uint64 { return r.chains[0].Generation() }

// key returns the key of a generation. Those of the two latest are kept, as
// packets of one may be among those of the next.
func (r *Reader) key(generation uint64) *Key {
	for _, k := range r.keys {
		if k.key != nil && k.generation == generation {
			return k.key
		}
	}
	at := int(generation - r.oldest())
	for at >= len(r.chains) {
		next := r.chains[len(r.chains)-1].clone()
		next.Next()
		r.chains = append(r.chains, next)
	}
	r.keys[1] = r.keys[0]
	r.keys[0] = readerKey{generation, r.chains[at].Key(r.first)}
	return r.keys[0].key
}
