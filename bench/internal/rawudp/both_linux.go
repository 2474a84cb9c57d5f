package rawudp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
)

const (
	turnBuffers = 4 // received at most before the next run is sent
	// linger is for how long a side goes on when it has measured: the other
	// one began a moment later.
	linger = 100 * time.Millisecond
)

// both sends and receives in turn, in one thread.
func (s *stream) both() (pair.Result, error) {
	if err := unix.SetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_GRO, 1); err != nil {
		return pair.Result{}, fmt.Errorf("UDP_GRO: %w", err)
	}
	t, err := s.newSender()
	if err != nil {
		return pair.Result{}, err
	}
	d := &duplex{stream: s, sender: t, receiver: receiver{memory: make([]byte, target)},
		buf: make([]byte, 1<<16), oob: make([]byte, 64), credit: make([]byte, creditLen)}
	if err := d.until(s.cfg.Warm); err != nil {
		return pair.Result{}, err
	}
	d.receiver.bytes, d.receiver.segments, d.receiver.buffers = 0, 0, 0
	from := time.Now()
	if err := d.until(s.cfg.Measure); err != nil {
		return pair.Result{}, err
	}
	r := d.receiver.result(time.Since(from))
	if r.Values["gbps"] == 0 {
		return r, errors.New("nothing came from the other side")
	}
	return r, d.until(linger)
}

// duplex is a side that sends and receives.
type duplex struct {
	*stream
	sender           *sender
	receiver         receiver
	buf, oob, credit []byte
	runs             int // received
}

func (d *duplex) until(length time.Duration) error {
	for end := time.Now().Add(length); time.Now().Before(end); {
		for range turnBuffers {
			if more, err := d.take(); err != nil {
				return err
			} else if !more {
				break
			}
		}
		if d.sender.sent-d.sender.acked < d.sender.window {
			if err := d.sender.transmit(d.stream); err != nil {
				return err
			}
		}
	}
	return nil
}

// take receives one buffer of credits or segments, if there is one.
func (d *duplex) take() (bool, error) {
	n, seg, e := d.recvSegments(d.buf, d.oob, unix.MSG_DONTWAIT)
	switch {
	case e == unix.EAGAIN:
		return false, nil
	case e != 0:
		return false, fmt.Errorf("receiving: %w", e)
	case seg == creditLen:
		for b := d.buf[:n]; len(b) >= creditLen; b = b[creditLen:] {
			d.sender.acked = max(d.sender.acked, binary.LittleEndian.Uint64(b))
		}
		return true, nil
	}
	d.receiver.take(d.buf[:n], seg, d.stream)
	if d.runs++; d.runs%creditRuns == 0 {
		binary.LittleEndian.PutUint64(d.credit, d.receiver.next)
		if e := d.sendto(d.credit, 0); e != 0 && e != unix.EAGAIN && e != unix.ENOBUFS {
			return false, fmt.Errorf("sending a credit: %w", e)
		}
	}
	return true, nil
}
