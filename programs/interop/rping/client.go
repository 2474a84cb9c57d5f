package rping

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// ErrMismatch is wrapped by the error of a client whose data came back
// otherwise.
var ErrMismatch = errors.New("data mismatch")

// newClient makes the client's end: the data to be read, followed by the place
// for what comes back.
func newClient(dev *verbs.Device, c Config) (*side, error) {
	return newSide(dev, 0, c, 2*c.Size, verbs.RemoteRead|verbs.RemoteWrite)
}

// offer tells the server of the data at off.
func (s *side) offer(off int) error {
	at := s.data.RemoteAt(off)
	return s.tell(buffer{addr: at.Addr, rkey: s.data.RKey(), size: uint32(s.cfg.Size)})
}

// runClient makes pings over a connection.
func (s *side) runClient() (Result, error) {
	size := s.cfg.Size
	start, sink := s.data.Bytes()[:size], s.data.Bytes()[size:]
	var res Result
	begin := time.Now()
	for s.cfg.Count == 0 || res.Pings < s.cfg.Count {
		fill(start, res.Pings)
		for _, off := range []int{0, size} {
			if err := s.offer(off); err != nil {
				return res, err
			}
			if _, err := s.hear(); err != nil {
				return res, fmt.Errorf("ping %d: %w", res.Pings, err)
			}
		}
		if s.cfg.Validate && !bytes.Equal(start, sink) {
			return res, fmt.Errorf("%w: ping %d came back as %.80q", ErrMismatch, res.Pings, text(sink))
		}
		res.Pings++
		res.Bytes += 2 * uint64(size)
		res.Elapsed = time.Since(begin)
		if s.cfg.OnPing != nil {
			s.cfg.OnPing(text(sink))
		}
	}
	return res, s.done()
}
