package rping

import (
	"errors"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs"
)

// newServer makes the server's end. Its memory grows with what the client
// offers.
func newServer(dev *verbs.Device, number verbs.QPN, c Config) (*side, error) {
	return newSide(dev, number, c, 1, 0)
}

// runServer answers pings until the client disconnects.
func (s *side) runServer() (Result, error) {
	var res Result
	begin := time.Now()
	for {
		b, err := s.hear()
		if err == nil {
			err = s.admit()
		}
		switch {
		case errors.Is(err, interop.ErrDisconnected):
			return res, nil
		case errors.Is(err, interop.ErrNoProgress) && res.Pings > 0:
			return res, fmt.Errorf("after %d pings the client has sent neither another nor its end: its DREQ may be lost, which the original sends once: %w", res.Pings, err)
		case err != nil:
			return res, fmt.Errorf("ping %d: %w", res.Pings, err)
		}
		if err := s.answer(b, &res); err != nil {
			return res, fmt.Errorf("ping %d: %w", res.Pings, err)
		}
		res.Elapsed = time.Since(begin)
	}
}

// answer takes one ping, whose data the client has offered.
func (s *side) answer(source buffer, res *Result) error {
	if err := s.room(source.size); err != nil {
		return err
	}
	n := int(source.size)
	err := s.transfer(verbs.SendWR{Opcode: verbs.OpRead, SGList: []verbs.SGE{s.data.Slice(0, n)}, Remote: source.remote()})
	if err != nil {
		return err
	}
	ping := text(s.data.Bytes()[:n])
	if s.cfg.OnPing != nil {
		s.cfg.OnPing(ping)
	}
	sink, err := s.hear()
	if err != nil {
		return err
	}
	back := min(len(ping)+1, n) // with the NUL
	if uint64(sink.size) < uint64(back) {
		return fmt.Errorf("the client offers %d bytes for an answer of %d", sink.size, back)
	}
	err = s.transfer(verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{s.data.Slice(0, back)}, Remote: sink.remote()})
	if err != nil {
		return err
	}
	res.Pings++
	res.Bytes += uint64(n) + uint64(back)
	return nil
}

// room has the memory of this side hold size bytes.
func (s *side) room(size uint32) error {
	if size < 1 || uint64(size) > uint64(s.cfg.Size) {
		return fmt.Errorf("the client offers %d bytes: pings have between 1 and %d here", size, s.cfg.Size)
	}
	n := int(size)
	if n <= s.data.Len() {
		return nil
	}
	mr, err := s.PD.AllocMemory(n, verbs.LocalWrite)
	if err != nil {
		return err
	}
	s.data.Close()
	s.data = mr
	return nil
}

// transfer moves data, waits for it, and tells the client to go on. The message
// says nothing.
func (s *side) transfer(wr verbs.SendWR) error {
	if err := s.post(wr); err != nil {
		return err
	}
	if err := s.done(); err != nil {
		return err
	}
	return s.tell(buffer{})
}
