package verbs_test

import (
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// What holds between two devices holds between two sides of one whose packets
// loop back inside it: these tests run once more there, see newPair.
func TestLoopback(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"operations":   TestEveryOperationCarriesItsBytes,
		"atomics":      TestAtomicsReturnTheOldValue,
		"inline":       TestInlineNeedsNoRegion,
		"scatter":      TestScatterGather,
		"unsignaled":   TestUnsignaledSendsAreSilent,
		"many":         TestManyQueuePairsAtOnce,
		"invalidate":   TestSendWithInvalidate,
		"faults":       TestFaultsOfThePeerBecomeStatuses,
		"rnr":          TestMissingReceiveIsAwaited,
		"overflow":     TestCompletionQueueOverflow,
		"deregistered": TestDeregisteredMemoryIsOutOfReach,
		"memory":       TestKindsOfMemory,
		"truncated":    TestTruncatedFileIsAFault,
		"solicited":    TestSolicitedNotification,
		"established":  TestCommunicationEstablished,
		"waiting":      TestReceivingChangesHands,
		"last":         TestLastMessageIsAcknowledged,
	} {
		t.Run(name, test)
	}
}

func overLoopback(t testing.TB) bool { return strings.HasPrefix(t.Name(), "TestLoopback/") }

// newLoopbackPair is newPair on a single device.
func newLoopbackPair(t testing.TB, size int, opts ...verbs.ConnectOption) (a, b *side) {
	t.Helper()
	link, other := fabric.Pair(addrA, addrB)
	dev, err := verbs.OpenLink(link, verbs.Config{Loopback: true})
	check(t, err)
	t.Cleanup(func() {
		if n := dev.Stats().Link.TxPackets; n != 0 {
			t.Errorf("%d packets went through the link", n)
		}
		check(t, dev.Close())
		check(t, other.Close())
	})
	a, b = newSide(t, dev, size), newSide(t, dev, size)
	connect(t, a.qp, b.qp, opts...)
	return a, b
}
