package qptest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/gosoftroce/rocev2/ib"
)

// cmdCQ prints and takes the completions of one side.
func (s *scene) cmdCQ(words []string) error {
	a, _, err := s.sideWithQP(words)
	if err != nil {
		return err
	}
	n := 0
	for _, wc := range append(a.sendCQ.drain(), a.recvCQ.drain()...) {
		s.printf("%s", s.formatWC(&wc))
		n++
	}
	if n == 0 {
		s.printf("nothing")
	}
	return nil
}

func (s *scene) formatWC(wc *ib.WC) string {
	out := fmt.Sprintf("id=%d %v", wc.ID, wc.Status)
	if wc.Status != ib.StatusSuccess {
		return out
	}
	out += fmt.Sprintf(" %v len=%d", wc.Opcode, wc.ByteLen)
	if wc.WithGRH {
		out += fmt.Sprintf(" grh from=%v", wc.SrcQPN)
	}
	if wc.WithImm {
		out += fmt.Sprintf(" imm=%#x", wc.Imm)
	}
	if wc.WithInv {
		out += " inv=" + s.keyName(wc.InvalidatedKey)
	}
	if wc.Solicited {
		out += " solicited"
	}
	return out
}

func (s *scene) cmdEvents(words []string) error {
	a, _, err := s.sideWithQP(words)
	if err != nil {
		return err
	}
	n := 0
	for {
		e, ok := a.PollEvent()
		if !ok {
			break
		}
		s.printf("%v", e)
		n++
	}
	if n == 0 {
		s.printf("nothing")
	}
	return nil
}

// cmdState prints the state and the deadline of a QP.
func (s *scene) cmdState(words []string) error {
	a, _, err := s.sideWithQP(words)
	if err != nil {
		return err
	}
	if t, ok := a.Deadline(); ok {
		s.printf("%v, timer in %s", a.State(), duration(t-s.now))
	} else {
		s.printf("%v, no timer", a.State())
	}
	return nil
}

// cmdMem: mem b 0x11000 16
func (s *scene) cmdMem(words []string) error {
	a, b, err := s.span(words)
	if err != nil {
		return err
	}
	_ = a
	zero := len(bytes.Trim(b, "\x00")) == 0
	switch {
	case zero:
		s.printf("%d zero bytes", len(b))
	case len(b) > 64:
		return errors.New("too much memory to show")
	default:
		s.printf("%s", hex.EncodeToString(b))
	}
	return nil
}

// span reads SIDE ADDRESS LENGTH.
func (s *scene) span(words []string) (*actor, []byte, error) {
	a, rest, err := s.side(words)
	if err != nil || len(rest) < 2 {
		return nil, nil, errors.Join(err, errors.New("SIDE ADDRESS LENGTH"))
	}
	va, err1 := strconv.ParseUint(rest[0], 0, 64)
	n, err2 := strconv.Atoi(rest[1])
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, err
	}
	b, err := a.at(va, n)
	return a, b, err
}

// cmdSame: same a 0x1000 b 0x11000 5000
func (s *scene) cmdSame(words []string) error {
	if len(words) != 5 {
		return errors.New("same SIDE ADDRESS SIDE ADDRESS LENGTH")
	}
	_, x, err1 := s.span([]string{words[0], words[1], words[4]})
	_, y, err2 := s.span([]string{words[2], words[3], words[4]})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for i := range x {
		if x[i] != y[i] {
			s.printf("different from byte %d", i)
			return nil
		}
	}
	s.printf("same")
	return nil
}

func (s *scene) cmdLoad(words []string) error {
	a, b, err := s.span(append(words[:len(words):len(words)], "8"))
	if err != nil {
		return err
	}
	_ = a
	s.printf("%d", nativeLoad(b))
	return nil
}

func (s *scene) cmdStore(words []string) error {
	if len(words) != 3 {
		return errors.New("store SIDE ADDRESS VALUE")
	}
	_, b, err := s.span([]string{words[0], words[1], "8"})
	if err != nil {
		return err
	}
	v, err := strconv.ParseUint(words[2], 0, 64)
	if err != nil {
		return err
	}
	nativeStore(b, v)
	return nil
}
