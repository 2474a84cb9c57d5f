package verbs_test

import (
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// The sum over all queue pairs keeps what closed ones have counted.
func TestQPStatsOfDevice(t *testing.T) {
	t.Parallel()
	a, _ := newPair(t, 64)
	remote := verbs.RemoteMemory{}
	second := a.newQP(verbs.QPConfig{})
	wr := verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Signaled: true, Inline: []byte{1}, Remote: remote.At(0)}
	check(t, a.qp.PostSend(wr)) // no such key: the peer answers with a NAK
	if wc := a.wait(); wc.Status != verbs.StatusRemAccessErr {
		t.Fatalf("completion status %v", wc.Status)
	}
	got := a.dev.QPStats()
	if want := a.qp.Stats(); got != want || got.TxPackets == 0 || got.NAKAccessReceived != 1 {
		t.Errorf("of two queue pairs, one idle: %+v\nthe busy one has %+v", got, want)
	}
	check(t, a.qp.Close())
	check(t, second.Close())
	if after := a.dev.QPStats(); after.NAKAccessReceived != 1 || after.TxPackets != got.TxPackets {
		t.Errorf("when both are closed: %+v, want %+v", after, got)
	}
}
