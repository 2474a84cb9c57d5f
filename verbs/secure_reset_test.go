package verbs_test

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// sealBoth has both sides of a pair seal, with keys of a generation.
func sealBoth(t *testing.T, sa, sb *verbs.Sealing, g uint8) {
	t.Helper()
	toA, toB := verbs.Association{SPI: sa.SPI(0), Key: make([]byte, 16)}, verbs.Association{SPI: sb.SPI(0), Key: make([]byte, 16)}
	toA.Key[0], toB.Key[0], toB.Key[1] = g, g, 1
	check(t, errors.Join(sa.Accept(toA), sb.Accept(toB), sa.Seal(toB), sb.Seal(toA)))
}

// TestKeysEndWithInit has a queue pair begin anew, and its peer go on with the
// keys of the connection before: the queue pair, which awaits the same PSN,
// takes nothing that they have sealed.
func TestKeysEndWithInit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := sealedPair(t, fabric.Config{})
		sealBoth(t, sealing(t, a.QP), sealing(t, b.QP), 1)
		check(t, b.QP.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState))
		check(t, b.QP.Init())
		check(t, sealing(t, b.QP).Require())
		check(t, b.QP.ReadyToReceive(a.QP.Endpoint()))
		copy(a.MR.Bytes(), "of the connection before")
		check(t, a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: sgl(a.MR, 0, 24), Remote: b.MR.RemoteAt(0)}))
		wc := a.Next(t)
		if wc.Err() == nil || bytes.HasPrefix(b.MR.Bytes(), []byte("of")) {
			t.Errorf("a packet with a key of the connection before was taken: %v", wc.Status)
		}
		if n := b.Dev.SealCounters(); n.Opened > 0 || n.Unknown == 0 {
			t.Errorf("%+v", n)
		}
	})
}

// TestSealingOfTheNextConnection has a Sealing that the program has kept seal
// the next connection, and the one after that: each ends with RESET, and the
// last with Close.
func TestSealingOfTheNextConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := sealedPair(t, fabric.Config{})
		sa, sb := sealing(t, a.QP), sealing(t, b.QP)
		for g := range uint8(3) {
			sealBoth(t, sa, sb, g)
			check(t, a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: sgl(a.MR, 0, 24), Remote: b.MR.RemoteAt(0)}))
			check(t, a.Next(t).Err())
			sa.Rekey()
			reset := &verbs.Attr{State: verbs.StateReset}
			check(t, errors.Join(a.QP.Modify(reset, verbs.AttrState), b.QP.Modify(reset, verbs.AttrState)))
			if sa.Generation() != 0 || sa.State() != verbs.SecurityClear {
				t.Errorf("after RESET: generation %d, %v", sa.Generation(), sa.State())
			}
			for _, q := range []*verbs.QP{a.QP, b.QP} {
				check(t, q.Init())
			}
			check(t, errors.Join(a.QP.ReadyToReceive(b.QP.Endpoint()), b.QP.ReadyToReceive(a.QP.Endpoint())))
			check(t, errors.Join(a.QP.ReadyToSend(), b.QP.ReadyToSend()))
		}
		check(t, errors.Join(a.QP.Close(), b.QP.Close()))
		if err := sa.Accept(verbs.Association{SPI: sa.SPI(0), Key: make([]byte, 16)}); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}
