package verbs_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// TestClearAheadOfSealed has an attacker send a packet in clear, which waits
// for the one before it, while the queue pair takes both kinds. When the one
// before it comes sealed, it must not be executed.
func TestClearAheadOfSealed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := sealedPair(t, fabric.Config{})
		write := func(offset int) {
			t.Helper()
			check(t, a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: sgl(a.MR, 0, 8), Remote: b.MR.RemoteAt(offset)}))
			check(t, a.Next(t).Err())
		}
		write(0)
		forged := transport.RxPacket{Data: a.cable.Take()[0], Src: addrsOfSealed[0], Dst: addrsOfSealed[1], SrcPort: 4791, ICRC: transport.ICRCVerified}
		n := uint32(a.QP.Query().SQPSN) + 1
		forged.Data[9], forged.Data[10], forged.Data[11] = byte(n>>16), byte(n>>8), byte(n)
		forged.Data[len(forged.Data)-5] ^= 0xff
		was := bytes.Clone(b.MR.Bytes()[:8])

		sa, sb := sealing(t, a.QP), sealing(t, b.QP)
		toA, toB := sa.SPI(0), sb.SPI(0)
		intoA := verbs.Association{SPI: toA, Key: keyOf(toA, verbs.SealGCM128)}
		intoB := verbs.Association{SPI: toB, Key: keyOf(toB, verbs.SealGCM128)}
		check(t, errors.Join(sa.Accept(intoA), sb.Accept(intoB)))
		b.cable.Arrive(forged)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		check(t, errors.Join(sa.Seal(intoB), sb.Seal(intoA)))
		write(64)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := b.MR.Bytes()[:8]; !bytes.Equal(got, was) {
			t.Errorf("a packet in clear was executed after a sealed one: %x", got)
		}
		write(128)
	})
}

// TestAssociationAfterClose has a program begin associations of a queue pair
// that has gone, or in the wrong order: nothing is left of them.
func TestAssociationAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := sealedPair(t, fabric.Config{})
		s := sealing(t, a.QP)
		to, into := sealing(t, b.QP).SPI(0), s.SPI(0)
		seals := verbs.Association{SPI: to, Key: keyOf(to, verbs.SealGCM128)}
		accepts := verbs.Association{SPI: into, Key: keyOf(into, verbs.SealGCM128)}
		if err := s.Seal(seals); err == nil {
			t.Fatal("a queue pair seals before it accepts")
		}
		check(t, errors.Join(s.Accept(accepts), s.Seal(seals)))
		check(t, a.QP.Close())
		for range 2 {
			if err := s.Accept(accepts); !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("a queue pair that is closed accepts: %v", err)
			}
		}
	})
}

// TestKeyUsedAgain has two queue pairs begin anew with the keys that they had:
// packets would have the same initialization vectors.
func TestKeyUsedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := sealedPair(t, fabric.Config{})
		seal(t, a.QP, b.QP, verbs.SealGCM128)
		reset := &verbs.Attr{State: verbs.StateReset}
		check(t, errors.Join(a.QP.Modify(reset, verbs.AttrState), b.QP.Modify(reset, verbs.AttrState)))
		verbstest.Connect(t, a.QP, b.QP)
		sa, sb := sealing(t, a.QP), sealing(t, b.QP)
		toA, toB := sa.SPI(0), sb.SPI(0)
		intoA := verbs.Association{SPI: toA, Key: keyOf(toA, verbs.SealGCM128)}
		intoB := verbs.Association{SPI: toB, Key: keyOf(toB, verbs.SealGCM128)}
		for range 2 {
			if err := sa.Accept(intoA); err == nil || !strings.Contains(err.Error(), "keys of its own") {
				t.Errorf("accepts with a key that was used: %v", err)
			}
			time.Sleep(time.Hour) // the key itself has gone
		}
		intoA.Key[0]++
		check(t, sa.Accept(intoA))
		if err := sa.Seal(intoA); err == nil || !strings.Contains(err.Error(), "the other direction") {
			t.Errorf("seals with the key and SPI that it accepts: %v", err)
		}
		if err := sa.Seal(intoB); err == nil || !strings.Contains(err.Error(), "keys of its own") {
			t.Errorf("seals with a key that was used: %v", err)
		}
		intoB.Key[0]++
		check(t, errors.Join(sb.Accept(intoB), sa.Seal(intoB), sb.Seal(intoA)))
		check(t, a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: sgl(a.MR, 0, 8), Remote: b.MR.RemoteAt(0)}))
		check(t, a.Next(t).Err())
	})
}
