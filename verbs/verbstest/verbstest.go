// Package verbstest gives the tests of programs connected RDMA devices on a
// network inside the process, which go when the test ends. The network can
// lose, delay, reorder and corrupt packets, by seed, and change in the middle
// of a test: see [fabric.Port]. It needs no privileges, no address and no port,
// so tests run in parallel; inside a testing/synctest bubble they run in
// virtual time.
//
//	func TestSurvivesACutCable(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) { // in virtual time
//			a, b := verbstest.NewPair(t)
//			b.Port.Cut()
//			time.AfterFunc(200*time.Millisecond, b.Port.Plug)
//			err := a.QP.PostSend(verbs.SendWR{
//				ID: 1, Opcode: verbs.OpWrite, Signaled: true,
//				Inline: []byte("hello"), Remote: b.MR.RemoteAt(0),
//			})
//			if err != nil {
//				t.Fatal(err)
//			}
//			if err := a.Next(t).Err(); err != nil {
//				t.Error(err)
//			}
//		})
//	}
//
// Make the pair inside the bubble: its goroutines and timers are then in
// virtual time too, and a test of seconds takes none.
//
// The network of NewPair has two ports. For more devices attach ports to a
// [fabric.Switch], and open a device on each by [verbs.OpenLink].
package verbstest

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// Config says what NewPair makes. The zero value works.
type Config struct {
	Network fabric.Config       // with the impairments of both cables
	Device  verbs.Config        // of both devices
	Memory  int                 // bytes of each side's region; 0 means 64 KiB
	CQE     int                 // entries of each side's CQ; 0 means 256
	QP      verbs.QPConfig      // of both queue pairs; NewPair fills in the CQs
	Connect verbs.ConnectConfig // of both sides
}

// Side is one end of a connection: a device with one of everything. The
// device's Close, which the test's cleanup calls, closes all of it.
type Side struct {
	Dev  *verbs.Device
	PD   *verbs.PD    // of QP and MR
	CQ   *verbs.CQ    // of both queues of QP
	QP   *verbs.QP    // connected to the other side's
	MR   *verbs.MR    // memory with all rights
	Port *fabric.Port // of the network: its loss, its cable
}

// The addresses of the two sides: documentation addresses (RFC 5737), which
// belong to no host.
var (
	addrA = netip.MustParseAddr("192.0.2.1")
	addrB = netip.MustParseAddr("192.0.2.2")
)

// QKey is the Q_Key of the queue pairs of UD that NewPair makes.
const QKey = 0x11111111

// NewPair makes two connected sides; the first Config given, if any, describes
// them. Queue pairs of UD are active, with QKey: the test makes its address
// handles. The sides are closed when the test ends. What cannot be made fails
// the test.
func NewPair(t testing.TB, cfg ...Config) (a, b *Side) {
	t.Helper()
	var c Config
	if len(cfg) > 0 {
		c = cfg[0]
	}
	a, b = newSides(t, c)
	for _, s := range []*Side{a, b} {
		s.equip(t, c)
	}
	if c.QP.Type == verbs.UD || c.QP.Type == verbs.GSI {
		must(t, a.QP.Activate(QKey))
		must(t, b.QP.Activate(QKey))
		return a, b
	}
	Connect(t, a.QP, b.QP, verbs.WithConfig(c.Connect))
	return a, b
}

// Devices makes two devices that reach each other and are closed when the test
// ends; of the Config, Network and Device count.
func Devices(t testing.TB, cfg ...Config) (a, b *verbs.Device) {
	t.Helper()
	var c Config
	if len(cfg) > 0 {
		c = cfg[0]
	}
	sa, sb := newSides(t, c)
	return sa.Dev, sb.Dev
}

func newSides(t testing.TB, c Config) (a, b *Side) {
	t.Helper()
	sw := fabric.NewSwitch(c.Network)
	var sides []*Side
	for _, addr := range []netip.Addr{addrA, addrB} {
		s := &Side{}
		var err error
		s.Port, err = sw.Attach(addr)
		must(t, err)
		s.Dev, err = verbs.OpenLink(s.Port, c.Device)
		must(t, err)
		t.Cleanup(func() {
			if err := s.Dev.Close(); err != nil {
				t.Errorf("close the device of %v: %v", addr, err)
			}
		})
		sides = append(sides, s)
	}
	return sides[0], sides[1]
}

func (s *Side) equip(t testing.TB, c Config) {
	t.Helper()
	var err error
	s.PD, err = s.Dev.AllocPD()
	must(t, err)
	if c.Memory == 0 {
		c.Memory = 64 << 10
	}
	s.MR, err = s.PD.RegisterMemory(make([]byte, c.Memory),
		verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	must(t, err)
	if c.CQE == 0 {
		c.CQE = 256
	}
	s.CQ, err = s.Dev.CreateCQ(c.CQE)
	must(t, err)
	c.QP.SendCQ, c.QP.RecvCQ = s.CQ, s.CQ
	s.QP, err = s.PD.CreateQP(c.QP)
	must(t, err)
}

// Connect connects two queue pairs with each other.
func Connect(t testing.TB, a, b *verbs.QP, opts ...verbs.ConnectOption) {
	t.Helper()
	must(t, a.Connect(t.Context(), b.Endpoint(), opts...))
	must(t, b.Connect(t.Context(), a.Endpoint(), opts...))
}

// patience is how long Next waits, so that a test fails rather than hangs.
const patience = time.Minute

// Next takes the next completion of s.CQ. It fails the test when none comes for
// a minute. Whether the work succeeded is for the caller to ask: WC.Err.
func (s *Side) Next(t testing.TB) verbs.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wc [1]verbs.WC
	_, err := s.CQ.Wait(ctx, wc[:])
	must(t, err)
	return wc[0]
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
