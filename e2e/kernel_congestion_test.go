//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/e2e/attack"
	"github.com/gosoftroce/rocev2/e2e/guest"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/perftest"
	"github.com/gosoftroce/rocev2/verbs"
)

// congestionEnv tells TestCongestionSide what to do: a name of
// congestionCells, our address and that of the guest.
const congestionEnv = "ROCEV2_E2E_CONGESTION"

const (
	// slowest is what notifications bring the rate down to, in bits per
	// second. Then it grows slowly, by 90 Mb/s in a second, so that it
	// does not matter if notifications are late for once.
	slowest     = 4_000_000
	slowlyBack  = "dcqcn,line=200M,min=4M,ai=5k,hai=5k"
	notifyEvery = 50 * time.Microsecond
	// notifyGuest is for those that a guest gets: more of them keep its
	// emulated processor from its work.
	notifyGuest = 2 * time.Millisecond

	congestionPart  = 2 * time.Second // in which data is counted
	congestionTest  = 16              // seconds that the tools run
	congestionSides = "report: "      // begins a line of the side
)

type congestionCell struct {
	name   string
	argv   string // of the kernel's tool
	client bool   // we are
	theirs bool   // the data is the kernel's, and so it is told to slow down
}

// congestionCells have data flow between a kernel and us, while the test sends
// congestion notifications in the name of the side that receives it.
var congestionCells = []congestionCell{
	{name: "read", argv: "ib_read_bw"},
	{name: "write", argv: "ib_write_bw", client: true},
	{name: "ignored", argv: "ib_write_bw", theirs: true},
}

// congestionReport is what the side has seen.
type congestionReport struct {
	Before, During, After float64 // bits per second of data
	Rate                  []uint64
	Sent                  int    // notifications
	Received              uint64 // of them, by our queue pair
	RateCuts              uint64
	Last                  uint64 // the rate at the end; 0: none
}

// TestKernelCongestion has notifications slow our answers to the READs of a
// kernel, and our WRITEs to one. Afterwards both are as fast as before, and no
// side has an error. Linux does not know notifications: it drops those that it
// gets, and goes on.
func TestKernelCongestion(t *testing.T) {
	lab := startLab(t)
	t.Run("kernel", func(t *testing.T) {
		for _, g := range lab.Guests {
			t.Run(g.Line, func(t *testing.T) {
				t.Parallel() // every guest has an address of ours to itself
				for _, c := range congestionCells {
					t.Run(c.name, func(t *testing.T) {
						runNotified(t, lab.Host, g, c)
					})
				}
			})
		}
	})
}

// runNotified runs a cell.
func runNotified(t *testing.T, h *guest.Host, g *guest.Guest, c congestionCell) {
	for attempt := 1; ; attempt++ {
		r, err := notifiedTransfer(t, h, g, c.name, c.argv, c.client)
		if err != nil && attempt < 3 { // a guest that is not scheduled is like one that is gone
			t.Logf("repeated: %v", err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%.1f Mb/s, %.1f with %d notifications, %.1f after them; %d cuts, rates %v",
			r.Before/1e6, r.During/1e6, r.Sent, r.After/1e6, r.RateCuts, r.Rate)
		if !c.theirs {
			checkNotified(t, r)
		}
		if t.Failed() || asFast(t, r, c.theirs) {
			return
		}
		if attempt == 3 {
			t.Fatal("the guest is slow, or the rate has done nothing")
		}
	}
}

// asFast reports whether notifications have slowed a transfer down, or, if they
// are not heard, have not. On a busy machine a guest may be slow by itself.
func asFast(t *testing.T, r *congestionReport, theirs bool) bool {
	t.Helper()
	if theirs {
		if r.Received != 0 || r.RateCuts != 0 {
			t.Errorf("notifications for the kernel reached us: %+v", r)
		}
		return r.During > r.Before/2
	}
	return r.Before > 2*r.During && r.After > 2*r.During
}

// checkNotified checks the report of a transfer that was slowed down.
func checkNotified(t *testing.T, r *congestionReport) {
	t.Helper()
	if r.Received == 0 || r.RateCuts == 0 || r.RateCuts > r.Received {
		t.Errorf("%d notifications came, and the rate was cut %d times", r.Received, r.RateCuts)
	}
	low := 0
	for _, rate := range r.Rate {
		if rate != 0 && rate <= 2*slowest {
			low++
		}
	}
	if low < len(r.Rate)/2 {
		t.Errorf("of %d times that the rate was looked at it was low %d times: %v", len(r.Rate), low, r.Rate)
	}
	if r.Last != 0 && r.Last < 5*slowest {
		t.Errorf("the rate is not back: %d", r.Last)
	}
	if r.During > 4*slowest {
		t.Errorf("%.1f Mb/s with notifications", r.During/1e6)
	}
}

// notifiedTransfer runs the kernel's tool, and our side in a process of its
// own.
func notifiedTransfer(t *testing.T, h *guest.Host, g *guest.Guest, name, tool string, weDial bool) (*congestionReport, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	argv := []string{tool, "-d", "rxe0", "-x", strconv.Itoa(g.GIDIndex(false)), "-F", "-u", "17", "-D", strconv.Itoa(congestionTest)}
	us := func() *guest.Process {
		p, err := h.Start(ctx, "env", congestionEnv+"="+strings.Join([]string{name, g.Host4.String(), g.Addr4.String()}, " "),
			self, "-test.run=^TestCongestionSide$", "-test.v")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	var ours, kernel *guest.Process
	if weDial {
		kernel, err = g.Start(ctx, argv...)
		if err == nil {
			err = g.WaitListen(ctx, perftestPort)
		}
		if err == nil {
			ours = us()
		}
	} else {
		ours = us()
		if err = h.WaitListen(ctx, perftestPort); err == nil {
			kernel, err = g.Start(ctx, append(argv, g.Host4.String())...)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ended("the kernel's", kernel), ended("ours", ours)); err != nil {
		return nil, err
	}
	stdout, _ := ours.Output()
	_, text, _ := strings.Cut(stdout, congestionSides)
	text, _, _ = strings.Cut(text, "\n")
	r := new(congestionReport)
	if err := json.Unmarshal([]byte(text), r); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	return r, nil
}

const perftestPort = 18515

// TestCongestionSide is our side of TestKernelCongestion, in its network
// namespace, and the one that sends notifications.
func TestCongestionSide(t *testing.T) {
	words := strings.Fields(os.Getenv(congestionEnv))
	if len(words) != 3 {
		t.Skip("nothing is missing: TestKernelCongestion runs it, in a process of its own")
	}
	ours, kernel := netip.MustParseAddr(words[1]), netip.MustParseAddr(words[2])
	dev, err := verbs.OpenAddr(ours, verbs.Config{Congestion: slowlyBack})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	done := make(chan error, 1)
	var s notifier
	for _, c := range congestionCells {
		if c.name != words[0] {
			continue
		}
		s = notifier{dev: dev, src: kernel, dst: ours, theirs: c.theirs}
		go func() { done <- perfSide(t.Context(), dev, c.argv, c.client, kernel) }()
	}
	r, err := s.run(done)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s%s\n", congestionSides, text)
}

// perfSide runs a test of perftest with the kernel.
func perfSide(ctx context.Context, dev *verbs.Device, tool string, client bool, kernel netip.Addr) error {
	test, err := perftest.ParseTest(strings.TrimPrefix(tool, "ib_"))
	if err != nil {
		return err
	}
	c := perftest.Config{Test: test, Duration: congestionTest * time.Second, Events: true, Timeout: 17}
	if client {
		conn, err := net.Dial("tcp", netip.AddrPortFrom(kernel, perftestPort).String())
		if err != nil {
			return err
		}
		_, err = perftest.Run(ctx, dev, conn, interop.Client, c)
		return err
	}
	ln, err := net.Listen("tcp", netip.AddrPortFrom(dev.Addr(), perftestPort).String())
	if err != nil {
		return err
	}
	_, err = perftest.Serve(ctx, dev, ln, c)
	return err
}

// notifier watches a transfer, and sends notifications for a while.
type notifier struct {
	dev      *verbs.Device
	src, dst netip.Addr
	theirs   bool
	report   congestionReport
}

// run returns when the transfer is over.
func (s *notifier) run(done chan error) (*congestionReport, error) {
	q, err := s.queuePair(done)
	if err != nil {
		return nil, err
	}
	src, dst, to := s.src, s.dst, q.QPN()
	if s.theirs {
		src, dst, to = s.dst, s.src, q.Query().DestQPN
	}
	wire, err := attack.OpenRaw()
	if err != nil {
		return nil, err
	}
	defer wire.Close()
	r := &s.report
	r.Before = s.measure(q, false)
	stop, stopped := make(chan struct{}), make(chan error)
	go func() { stopped <- s.notify(wire, attack.Notification(src, dst, to), src, dst, stop) }()
	s.measure(q, false) // what was under way
	r.During = s.measure(q, true)
	close(stop)
	if err := <-stopped; err != nil {
		return nil, err
	}
	s.measure(q, false)
	r.After = s.measure(q, false)
	stats := q.Stats()
	r.Received, r.RateCuts, r.Last = stats.CNPsReceived, stats.RateCuts, q.Flow().Rate
	if err := <-done; err != nil {
		return nil, err
	}
	return r, nil
}

// queuePair waits for the one that carries data.
func (s *notifier) queuePair(done chan error) (*verbs.QP, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, n := range s.dev.QPNs() {
			if q := s.dev.QP(n); q != nil && s.bytes(q) > 1<<20 {
				return q, nil
			}
		}
		select {
		case <-tick.C:
		case err := <-done:
			return nil, fmt.Errorf("it ended before it began: %w", err)
		}
	}
}

// bytes is how much data was sent.
func (s *notifier) bytes(q *verbs.QP) uint64 {
	if s.theirs {
		return q.Stats().RxBytes
	}
	return q.Stats().TxBytes
}

// measure returns how many bits per second are sent. It looks at the rate now
// and then.
func (s *notifier) measure(q *verbs.QP, rate bool) float64 {
	tick := time.NewTicker(congestionPart / 20)
	defer tick.Stop()
	start, before := time.Now(), s.bytes(q)
	for range 20 {
		<-tick.C
		if rate {
			s.report.Rate = append(s.report.Rate, q.Flow().Rate)
		}
	}
	return 8 * float64(s.bytes(q)-before) / time.Since(start).Seconds()
}

// notify sends notifications, one in a while. One that is late is made up for.
func (s *notifier) notify(wire attack.Wire, packet []byte, src, dst netip.Addr, stop chan struct{}) error {
	const port = 4791
	every := notifyEvery
	if s.theirs {
		every = notifyGuest
	}
	from, to := netip.AddrPortFrom(src, port), netip.AddrPortFrom(dst, port)
	pause := unix.NsecToTimespec(int64(every))
	for start := time.Now(); ; {
		select {
		case <-stop:
			return nil
		default:
		}
		for s.report.Sent < int(time.Since(start)/every) {
			if err := wire.Send(from, to, packet); err != nil && !errors.Is(err, syscall.EPERM) {
				return err
			}
			s.report.Sent++
		}
		_ = unix.Nanosleep(&pause, nil) // an interruption is as good
	}
}
