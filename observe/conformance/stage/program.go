package stage

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/gosoftroce/rocev2/rocev2"
)

// errBare says why a script cannot go on.
var errBare = errors.New("it takes a target: a connection alone does not show this")

// hasTarget reports whether there is a target to ask.
func (s *Scene) hasTarget() bool {
	if s.conn == nil {
		s.Untested(errBare)
	}
	return !s.over
}

// WantMemory compares memory of the target, where there is one.
func (s *Scene) WantMemory(off int, bytesThere []byte, why string) {
	if s.over || s.conn == nil {
		return
	}
	got, err := s.conn.mem(off, len(bytesThere))
	if err != nil {
		s.Untested(err)
		return
	}
	expected := fmt.Sprintf("%s: %d bytes at offset %d of the memory", why, len(bytesThere), off)
	s.record.step("expected  %s", expected)
	for i := range got {
		if got[i] != bytesThere[i] {
			s.Fail(fmt.Sprintf("%s, %#02x at offset %d", expected, bytesThere[i], off+i), fmt.Sprintf("%#02x there", got[i]))
			return
		}
	}
}

// Fill writes the memory of the target.
func (s *Scene) Fill(off int, b []byte) {
	if !s.over && s.conn != nil {
		s.Untested(s.conn.fill(off, b))
	}
}

// WantRecv waits for the completion of receive i, and compares its bytes.
func (s *Scene) WantRecv(i int, payload []byte) Completion {
	c := s.WantCompletion(FirstRecv+uint64(i), 0)
	if s.over {
		return c
	}
	grh := 0
	if s.opt.Kind == "ud" {
		grh = rocev2.GRHLen
	}
	if c.Length != len(payload)+grh {
		s.Fail(fmt.Sprintf("a receive of %d bytes", len(payload)+grh), fmt.Sprintf("one of %d bytes", c.Length))
	}
	s.WantMemory(RecvBase+i*s.opt.RecvSize+grh, payload, "what was sent")
	return c
}

// WantCompletion waits for a completion of the target.
func (s *Scene) WantCompletion(id uint64, statuses ...int) Completion {
	if !s.hasTarget() {
		return Completion{}
	}
	text := fmt.Sprintf("a completion of request %d with status %s", id, statusNames(statuses))
	s.record.step("expected  %s", text)
	c, any, err := s.conn.wc(s.times.Answer)
	switch {
	case err != nil:
		s.Untested(err)
	case !any:
		s.Fail(text, "no completion within "+s.times.Answer.String())
	case c.ID != id || !slices.Contains(statuses, c.Status):
		s.Fail(text, fmt.Sprintf("a completion of request %d with status %s", c.ID, statusNames([]int{c.Status})))
	}
	return c
}

// NoCompletion checks that the target has none now. What was answered before
// has completed.
func (s *Scene) NoCompletion(why string) {
	if s.over || s.conn == nil {
		return
	}
	s.record.step("expected  no completion: %s", why)
	c, any, err := s.conn.wc(0)
	if err != nil {
		s.Untested(err)
	} else if any {
		s.Fail("no completion: "+why, fmt.Sprintf("a completion of request %d with status %s", c.ID, statusNames([]int{c.Status})))
	}
}

// WantError waits for the end of a request that cannot succeed: an error, maybe
// after repetitions, which are not answered.
func (s *Scene) WantError(id uint64) {
	if !s.hasTarget() {
		return
	}
	text := fmt.Sprintf("a completion of request %d with an error", id)
	s.record.step("expected  %s", text)
	wait := 2 * s.times.Answer
	c, any, err := s.conn.wc(wait)
	switch {
	case err != nil:
		s.Untested(err)
	case !any:
		s.Fail(text, fmt.Sprintf("no completion within %v", wait))
	case c.ID != id || c.Status == StatusSuccess:
		s.Fail(text, fmt.Sprintf("a completion of request %d with status %s", c.ID, statusNames([]int{c.Status})))
	}
}

// Post has the target post a request.
func (s *Scene) Post(id int, op string, off, n int, remote string) {
	if !s.hasTarget() {
		return
	}
	s.record.step("posted    request %d: %s of %d bytes by the target", id, op, n)
	_, err := s.conn.do(0, "post id=%d op=%s off=%d len=%d %s", id, op, off, n, remote)
	s.Untested(err)
}

// Recv has the target post a receive.
func (s *Scene) Recv(i int) {
	if s.hasTarget() {
		_, err := s.conn.do(0, "recv id=%d off=%d len=%d", FirstRecv+i, RecvBase+i*s.opt.RecvSize, s.opt.RecvSize)
		s.Untested(err)
	}
}

// WantState asks for the state of the target's queue pair.
func (s *Scene) WantState(name, why string) {
	if s.over || s.conn == nil {
		return
	}
	s.record.step("expected  the queue pair in %s: %s", name, why)
	v, err := s.conn.do(0, "state")
	if err != nil {
		s.Untested(err)
	} else if v.text["state"] != name {
		s.Fail(fmt.Sprintf("the queue pair in state %s: %s", name, why), fmt.Sprintf("state %.10s", v.text["state"]))
	}
}

// Alive sends one more request, which must be executed: the queue pair goes on
// as if nothing had been.
func (s *Scene) Alive() {
	b := Data(32, 99)
	s.Send(s.Message(Writes, b)...)
	s.WantAck(1)
	s.WantMemory(0, b, "the WRITE after it")
}

// Differs says where two payloads differ, or "".
func Differs(got, wanted []byte) string {
	if len(got) != len(wanted) {
		return fmt.Sprintf("%d bytes, not %d", len(got), len(wanted))
	}
	if !bytes.Equal(got, wanted) {
		return "other bytes"
	}
	return ""
}

// Statuses of completions.
const (
	StatusSuccess  = 0
	StatusLocLen   = 1
	StatusFlush    = 5
	StatusRemInv   = 9
	StatusRemAcc   = 10
	StatusRemOp    = 11
	StatusRetryExc = 12
	StatusRNRExc   = 13
)

var statusText = map[int]string{
	0: "SUCCESS", 1: "LOC_LEN_ERR", 2: "LOC_QP_OP_ERR", 4: "LOC_PROT_ERR", 5: "WR_FLUSH_ERR", 7: "BAD_RESP_ERR", 9: "REM_INV_REQ_ERR",
	10: "REM_ACCESS_ERR", 11: "REM_OP_ERR", 12: "RETRY_EXC_ERR", 13: "RNR_RETRY_EXC_ERR", 19: "FATAL_ERR", 21: "GENERAL_ERR",
}

func statusNames(list []int) string {
	text := ""
	for i, n := range list {
		if i > 0 {
			text += " or "
		}
		if name := statusText[n]; name != "" {
			text += name
		} else {
			text += fmt.Sprint(n)
		}
	}
	return text
}
