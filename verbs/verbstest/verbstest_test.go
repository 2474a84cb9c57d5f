package verbstest_test

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// The test in the package's documentation.
func TestSurvivesACutCable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // in virtual time
		a, b := verbstest.NewPair(t)
		b.Port.Cut()
		time.AfterFunc(200*time.Millisecond, b.Port.Plug)
		err := a.QP.PostSend(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Inline: []byte("hello"),
			Remote: b.MR.RemoteAt(0), Signaled: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Next(t).Err(); err != nil {
			t.Error(err)
		}
	})
}

// A cable that stays cut ends the connection after its retries, and a new
// connection works as soon as it is whole again.
func TestCutCableEndsConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.NewPair(t, verbstest.Config{
			Network: fabric.Config{Port: fabric.PortConfig{Delay: 50 * time.Microsecond}},
			Connect: verbs.ConnectConfig{Timeout: 10, RetryCount: verbs.Set(2)},
		})
		write := func() error {
			t.Helper()
			if err := a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: b.MR.RemoteAt(0), Signaled: true}); err != nil {
				t.Fatal(err)
			}
			return a.Next(t).Err()
		}
		if err := write(); err != nil {
			t.Error(err)
		}
		for _, s := range []*verbstest.Side{a, b} {
			s.Port.Cut()
			start := time.Now()
			if err := write(); !errors.Is(err, verbs.StatusRetryExcErr) {
				t.Errorf("a cut cable: %v", err)
			}
			if d := time.Since(start); d > time.Second {
				t.Errorf("noticed after %v", d)
			}
			s.Port.Plug()
			for _, q := range []*verbs.QP{a.QP, b.QP} {
				if err := q.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState); err != nil {
					t.Fatal(err)
				}
			}
			verbstest.Connect(t, a.QP, b.QP)
			if err := write(); err != nil {
				t.Errorf("plugged in again: %v", err)
			}
		}
	})
}

// Loss that comes and goes costs time, and no bytes.
func TestLossInMidTest(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	a, b := verbstest.NewPair(t, verbstest.Config{Memory: size, CQE: 4, QP: verbs.QPConfig{MaxSendWR: 2}})
	for i, loss := range []float64{0, 0.05, 0} {
		a.Port.SetLoss(loss)
		b.Port.SetLoss(loss)
		for j := range a.MR.Bytes() {
			a.MR.Bytes()[j] = byte(i + j*j)
		}
		if err := a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.MR.All()}, Remote: b.MR.RemoteAt(0), Signaled: true}); err != nil {
			t.Fatal(err)
		}
		if err := a.Next(t).Err(); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(a.MR.Bytes(), b.MR.Bytes()) {
			t.Errorf("round %d: other bytes arrived", i)
		}
	}
	if b.Port.Counters().Lost == 0 {
		t.Error("nothing was lost")
	}
}
