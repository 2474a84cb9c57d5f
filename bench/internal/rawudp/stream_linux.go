package rawudp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/rocev2"
)

const (
	maxRun     = 65507 // bytes of one UDP buffer
	creditRuns = 4     // runs received before the sender is told
	singles    = 64    // the same, of single datagrams
	target     = 4 << 20
	// headerLen of a segment: its number, then the payload, then the CRC32.
	headerLen, crcLen = 8, 4
	creditLen         = 8 // the number of the next segment
)

// stream is one end of the throughput measurement.
type stream struct{ *end }

// Run sends or receives.
func (s *stream) Run(stop <-chan struct{}) (pair.Result, error) {
	runtime.LockOSThread()
	if s.cfg.Segment < 64 || s.cfg.Segment > maxRun/2 {
		return pair.Result{}, fmt.Errorf("segments of %d bytes", s.cfg.Segment)
	}
	switch {
	case s.cfg.Both:
		return s.both()
	case s.cfg.Active:
		return s.receive()
	}
	return s.send(stop)
}

// sender is the state of the sending end.
type sender struct {
	arena       []byte // one run
	perRun      int
	window      uint64
	sent, acked uint64 // segments
}

func (s *stream) newSender() (*sender, error) {
	seg := s.cfg.Segment
	t := &sender{perRun: 1}
	if !s.cfg.Single {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_SEGMENT, seg); err != nil {
			return nil, fmt.Errorf("UDP_SEGMENT: %w", err)
		}
		t.perRun = maxRun / seg
	}
	// A segment occupies more of the receive buffer than its bytes; a
	// quarter of what is granted is always free of overruns. Both ends are
	// granted the same.
	t.window = uint64(max(s.recvBuffer()/4/(t.perRun*seg), 2) * t.perRun)
	t.arena = make([]byte, t.perRun*seg)
	for i := range t.arena {
		t.arena[i] = byte(i * 7)
	}
	return t, nil
}

// transmit numbers, checks and sends one run.
func (t *sender) transmit(s *stream) error {
	seg := s.cfg.Segment
	for i := range t.perRun {
		p := t.arena[i*seg : (i+1)*seg]
		binary.LittleEndian.PutUint64(p, t.sent+uint64(i))
		binary.LittleEndian.PutUint32(p[seg-crcLen:], s.checksum(p[:seg-crcLen]))
	}
	switch e := s.sendto(t.arena, 0); e {
	case 0:
		t.sent += uint64(t.perRun)
	case unix.EAGAIN, unix.ENOBUFS:
	default:
		return fmt.Errorf("sending a run: %w", e)
	}
	return nil
}

// send transmits runs as fast as the window allows.
func (s *stream) send(stop <-chan struct{}) (pair.Result, error) {
	t, err := s.newSender()
	if err != nil {
		return pair.Result{}, err
	}
	credit := make([]byte, creditLen)
	for {
		select {
		case <-stop:
			return pair.Result{}, nil
		default:
		}
		for t.sent-t.acked >= t.window || (t.sent-t.acked >= t.window/2 && t.sent%uint64(8*t.perRun) == 0) {
			if n, e := s.recvfrom(credit, unix.MSG_DONTWAIT); e == 0 && n == creditLen {
				t.acked = max(t.acked, binary.LittleEndian.Uint64(credit))
			} else if e != unix.EAGAIN && e != 0 {
				return pair.Result{}, e
			} else if t.sent-t.acked < t.window {
				break
			}
			select {
			case <-stop:
				return pair.Result{}, nil
			default:
			}
		}
		if err := t.transmit(s); err != nil {
			return pair.Result{}, err
		}
	}
}

// checksum is a CRC32 over b.
func (s *stream) checksum(b []byte) uint32 {
	if s.cfg.ICRC {
		return flow.ICRC(0, b)
	}
	return crc32.ChecksumIEEE(b)
}

// flow has any addresses: the same ones on both sides.
var flow = rocev2.NewFlow(netip.IPv6Loopback(), netip.IPv6Loopback(), 1, 1)

// receiver is the state of the receiving end.
type receiver struct {
	next                  uint64 // number of the next segment
	bytes, lost, bad, odd uint64
	buffers, segments     uint64
	memory                []byte
	place                 int
}

func (s *stream) receive() (pair.Result, error) {
	every := singles
	if !s.cfg.Single {
		every = creditRuns
		if err := unix.SetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_GRO, 1); err != nil {
			return pair.Result{}, fmt.Errorf("UDP_GRO: %w", err)
		}
	}
	r := receiver{memory: make([]byte, target)}
	buf, oob, credit := make([]byte, 1<<16), make([]byte, 64), make([]byte, creditLen)
	var first, from time.Time
	started := time.Now()
	runs := 0
	for {
		n, seg, e := s.recvSegments(buf, oob, unix.MSG_DONTWAIT)
		if e == unix.EAGAIN {
			if time.Since(started) > s.cfg.Warm+s.cfg.Measure+10*time.Second {
				return pair.Result{}, errors.New("the sender fell silent")
			}
			continue
		}
		if e != 0 {
			return pair.Result{}, fmt.Errorf("receiving: %w", e)
		}
		r.take(buf[:n], seg, s)
		if runs++; runs%every == 0 {
			binary.LittleEndian.PutUint64(credit, r.next)
			if e := s.sendto(credit, 0); e != 0 {
				return pair.Result{}, fmt.Errorf("sending a credit: %w", e)
			}
		}
		now := time.Now()
		switch {
		case first.IsZero():
			first = now
		case from.IsZero() && now.Sub(first) >= s.cfg.Warm:
			from, r.bytes, r.segments, r.buffers = now, 0, 0, 0
		case !from.IsZero() && now.Sub(from) >= s.cfg.Measure:
			return r.result(now.Sub(from)), nil
		}
	}
}

// take checks and copies the segments of one buffer.
func (r *receiver) take(b []byte, seg int, s *stream) {
	r.buffers++
	for ; len(b) >= seg && seg > 0; b = b[seg:] {
		p := b[:seg]
		if seg != s.cfg.Segment {
			r.odd++
			continue
		}
		if s.checksum(p[:seg-crcLen]) != binary.LittleEndian.Uint32(p[seg-crcLen:]) {
			r.bad++
			continue
		}
		n := binary.LittleEndian.Uint64(p)
		r.lost += n - r.next
		r.next = n + 1
		payload := p[headerLen : seg-crcLen]
		if r.place+len(payload) > len(r.memory) {
			r.place = 0
		}
		copy(r.memory[r.place:], payload)
		r.place += len(payload)
		r.bytes += uint64(len(payload))
		r.segments++
	}
}

func (r *receiver) result(d time.Duration) pair.Result {
	out := pair.Result{Values: map[string]float64{
		"gbps":                float64(r.bytes) * 8 / 1e9 / d.Seconds(),
		"segments_per_buffer": float64(r.segments) / float64(max(r.buffers, 1)),
	}, Errors: map[string]uint64{}}
	for name, n := range map[string]uint64{"lost": r.lost, "bad_crc": r.bad, "odd_size": r.odd} {
		if n > 0 {
			out.Errors[name] = n
		}
	}
	return out
}
