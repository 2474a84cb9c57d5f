package verbs_test

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestRequireOfConnected has an attacker that knows every number send the first
// packet in clear, to a queue pair whose program has agreed on keys before.
func TestRequireOfConnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// The other side sends in clear before it seals, as an attacker
		// does.
		a, b := sealedPair(t, fabric.Config{})
		sb := sealing(t, b.QP)
		if err := sb.Require(); err == nil {
			t.Fatal("a queue pair without keys takes sealed packets alone")
		}
		into := verbs.Association{SPI: sb.SPI(1), Version: verbs.SealGCM128, Key: keyOf(sb.SPI(1), verbs.SealGCM128)}
		check(t, errors.Join(sb.Accept(into), sb.Require()))
		if sb.State() != verbs.SecuritySealed {
			t.Errorf("state %v", sb.State())
		}
		copy(a.MR.Bytes(), "forged..")
		check(t, a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: sgl(a.MR, 0, 8), Remote: b.MR.RemoteAt(0)}))
		synctest.Wait()
		if bytes.HasPrefix(b.MR.Bytes(), []byte("forged")) {
			t.Error("a packet in clear was taken")
		}
		if n := b.Dev.Stats().Drops["wrong_security"]; n == 0 {
			t.Errorf("drops: %v", b.Dev.Stats().Drops)
		}
		sa := sealing(t, a.QP)
		back := verbs.Association{SPI: sa.SPI(1), Version: verbs.SealGCM128, Key: keyOf(sa.SPI(1), verbs.SealGCM128)}
		check(t, errors.Join(sa.Accept(back), sb.Seal(back), sa.Seal(into)))
		check(t, a.Next(t).Err()) // sent again, sealed
	})
}
