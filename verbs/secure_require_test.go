package verbs_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestRequire has queue pairs that take and send sealed packets alone, from
// their first one: what comes in clear before there is a key is dropped, and
// nothing leaves in clear.
func TestRequire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := sealedPair(t, fabric.Config{})
		if err := sealing(t, a.QP).Require(); err == nil || !strings.Contains(err.Error(), "in RESET or INIT") {
			t.Errorf("a queue pair that is connected: %v", err)
		}
		all := []*sealedSide{a, b}
		for _, s := range all {
			check(t, s.QP.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState))
			check(t, sealing(t, s.QP).Require())
			check(t, s.QP.Init())
			check(t, sealing(t, s.QP).Require()) // twice is once
			s.cable.Take()
		}
		for i, s := range all {
			check(t, s.QP.ReadyToReceive(all[1-i].QP.Endpoint()))
		}
		sa, sb := sealing(t, a.QP), sealing(t, b.QP)
		intoA := verbs.Association{SPI: sa.SPI(3), Version: verbs.SealGCM128, Key: bytes.Repeat([]byte{1}, 16)}
		intoB := verbs.Association{SPI: sb.SPI(3), Version: verbs.SealGCM128, Key: bytes.Repeat([]byte{2}, 16)}
		check(t, errors.Join(sa.Accept(intoA), sb.Accept(intoB), sa.Seal(intoB), sb.Seal(intoA)))
		for _, s := range all {
			check(t, s.QP.ReadyToSend())
			if got := sealing(t, s.QP).State(); got != verbs.SecuritySealed {
				t.Errorf("before the first packet it takes %v", got)
			}
		}
		check(t, a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: sgl(a.MR, 0, 100_000), Remote: b.MR.RemoteAt(0)}))
		check(t, a.Next(t).Err())
		for i, s := range all {
			if c := s.Dev.SealCounters(); c.Sealed == 0 || len(s.cable.Take()) != int(c.Sealed) {
				t.Errorf("side %d has sent something in clear: %+v", i, c)
			}
			check(t, s.QP.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState))
			if got := sealing(t, s.QP).State(); got != verbs.SecurityClear {
				t.Errorf("in RESET it takes %v", got)
			}
		}
		ud, err := a.PD.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: a.CQ, RecvCQ: a.CQ})
		check(t, err)
		if err := sealing(t, ud).Require(); err == nil || !strings.Contains(err.Error(), "type UD cannot be sealed") {
			t.Errorf("datagrams: %v", err)
		}
		s := sealing(t, ud)
		check(t, ud.Close())
		if err := s.Require(); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("a queue pair that is closed: %v", err)
		}
	})
}
