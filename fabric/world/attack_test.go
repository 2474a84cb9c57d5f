package world_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/internal/race"
	"github.com/gosoftroce/rocev2/verbs"
)

// A program that sleeps for longer than the time of a network can count does
// not stop it: it is one that waits for what does not come.
func TestSleepBeyondTheEndOfTime(t *testing.T) {
	t.Parallel()
	const long = 200 * 24 * time.Hour // 2^63 ps are 106 days
	w := newWorld(t, world.Config{Network: star(1)})
	called := false
	w.At(long, func() { called = true })
	slept := 0
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		short, cancel := w.WithTimeout(ctx, long)
		defer cancel()
		if err := w.Sleep(short, time.Hour); err != nil {
			t.Error(err)
		}
		slept++
		err := w.Sleep(ctx, long)
		slept++
		return err
	}))
	must(t, w.RunFor(2*time.Hour))
	must(t, w.RunFor(long))
	if err := w.Run(); !errors.Is(err, world.ErrStuck) || called || slept != 2 {
		t.Errorf("Run says %v; the script was called: %v; %d sleeps are over", err, called, slept)
	}
}

// A value goes to the next program that waits when the one that was woken for
// it gives up.
func TestBoxWakesTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Network: star(1)})
	b := world.NewBox[int](w)
	given, giveUp := context.WithCancel(context.Background())
	must(t, w.Go(0, func(context.Context, *verbs.Device) error {
		if _, err := b.Take(given); !errors.Is(err, context.Canceled) {
			t.Errorf("who gives up gets %v", err)
		}
		return nil
	}))
	got := 0
	must(t, w.Go(0, func(ctx context.Context, _ *verbs.Device) (err error) {
		got, err = b.Take(ctx)
		return err
	}))
	must(t, w.Go(0, func(ctx context.Context, _ *verbs.Device) error {
		b.Put(7)
		giveUp()
		return nil
	}))
	must(t, w.Run())
	if got != 7 {
		t.Errorf("the other one got %d", got)
	}
}

// What a program must not call says so, and does no harm.
func TestCallsFromInside(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Network: star(2)})
	inside := func(where string) {
		for what, err := range map[string]error{"Run": w.Run(), "RunFor": w.RunFor(time.Second), "Close": w.Close()} {
			if !errors.Is(err, world.ErrInside) {
				t.Errorf("%s from %s: %v", what, where, err)
			}
		}
	}
	w.At(time.Microsecond, func() { inside("a script") })
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		inside("a program")
		return w.Sleep(ctx, time.Millisecond)
	}))
	must(t, w.Run())
	if w.Now() != time.Millisecond {
		t.Errorf("the world ends after %v", w.Now())
	}
}

// Programs of one world that wait for another one are told that they cannot.
func TestWorldsAreApart(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t, world.Config{Network: star(1)}), newWorld(t, world.Config{Network: star(1)})
	foreign, err := other.Device(0)
	must(t, err)
	b := world.NewBox[int](other)
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		cq, err := foreign.CreateCQ(1)
		if err != nil {
			return err
		}
		_, err = cq.Wait(ctx, make([]verbs.WC, 1))
		_, taken := b.Take(ctx)
		for what, err := range map[string]error{"Wait": err, "Sleep": other.Sleep(ctx, 1), "Take": taken} {
			if !errors.Is(err, task.ErrNoTask) {
				t.Errorf("%s of another world: %v", what, err)
			}
		}
		return nil
	}))
	must(t, w.Run())
}

// Packets to an address outside the world are lost, whatever its last bytes
// are.
func TestAddressesOutside(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"192.168.0.1", "10.1.0.1", "10.0.0.77", "10.0.255.255"} {
		w := newWorld(t, world.Config{Network: star(2)})
		peer, err := w.Device(1)
		must(t, err)
		must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
			s, err := newSide(dev, make([]byte, 64))
			if err != nil {
				return err
			}
			to := verbs.Endpoint{Addr: netip.MustParseAddr(addr), QPN: 5}
			if err := s.qp.Connect(ctx, to, verbs.WithConfig(verbs.ConnectConfig{Timeout: 8, RetryCount: verbs.Set(uint8(1))})); err != nil {
				return err
			}
			if err := s.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("x"), Signaled: true}); err != nil {
				return err
			}
			if err := s.await(ctx, 1); err == nil || !strings.Contains(err.Error(), "RETRY_EXC") {
				t.Errorf("%s: %v", addr, err)
			}
			return nil
		}))
		must(t, w.Run())
		if n := peer.Stats().Link.RxPackets; n != 0 {
			t.Errorf("%s: host 1 has got %d packets", addr, n)
		}
	}
}

// A network that could run in parts runs in one: programs of all hosts take
// turns.
func TestNoParts(t *testing.T) {
	t.Parallel()
	var digests [2]uint64
	for i := range digests {
		c := clos(t, 2e6, 1)
		if i == 1 {
			c.Parts = 4
			c.Parallel = func(parts int, turn func(int)) {
				t.Error("parts run side by side")
				for i := range parts {
					turn(i)
				}
			}
		}
		w := newWorld(t, world.Config{Network: c})
		startRing(simulated{w}, 16, 3000)
		must(t, w.Run())
		digests[i] = w.Digest()
	}
	if digests[0] != digests[1] {
		t.Errorf("the digests are %x", digests)
	}
}

// Nothing is left of a world that was closed, however its programs end: in the
// middle of a wait, before they begin, by a panic, or by runtime.Goexit, which
// is what t.FailNow does.
func TestNoGoroutineIsLeft(t *testing.T) { // not parallel: it counts goroutines
	for name, end := range map[string]func(w *world.World){
		"waits":  func(*world.World) {},
		"panics": func(*world.World) { panic("on purpose") },
		"leaves": func(*world.World) { runtime.Goexit() },
	} {
		before := runtime.NumGoroutine()
		w, err := world.New(world.Config{Network: star(4)})
		must(t, err)
		ln, err := w.Listen(0, 0)
		must(t, err)
		unwound := 0
		for i := range 100 {
			must(t, w.Go(i%4, func(ctx context.Context, dev *verbs.Device) error {
				defer func() { unwound++ }()
				tasks := verbs.HCA(dev).Tasks()
				tasks.AfterFunc(time.Hour, func() {})
				tasks.Go(func() { ln.Accept() })
				defer tasks.OnEnd(ctx, func() {})()
				e := tasks.NewEvent()
				if i == 50 {
					if err := w.Sleep(ctx, time.Second); err != nil {
						return err
					}
					end(w)
				}
				return e.Wait(context.Background())
			}))
		}
		ran := make(chan any)
		go func() {
			defer close(ran)
			defer func() { ran <- recover() }()
			w.RunFor(time.Minute)
		}()
		if said := <-ran; (said != nil) != (name == "panics") || said != nil && !strings.Contains(fmt.Sprint(said), "host 2: on purpose") {
			t.Errorf("a world that %s: %v", name, said)
		}
		<-ran
		must(t, w.Go(1, func(context.Context, *verbs.Device) error { return nil }))
		if err := w.Close(); name == "waits" && !errors.Is(err, world.ErrEnded) {
			t.Errorf("Close says %v", err)
		}
		if unwound != 100 {
			t.Errorf("a world that %s: %d of 100 programs are unwound", name, unwound)
		}
		if _, err := w.Device(0); !errors.Is(err, world.ErrEnded) {
			t.Errorf("a device of a world that is closed: %v", err)
		}
		// One that has closed its channel may be on its way out.
		for end := time.Now().Add(2 * time.Minute); runtime.NumGoroutine() > before && time.Now().Before(end); {
			runtime.Gosched()
		}
		if after := runtime.NumGoroutine(); after > before {
			t.Errorf("a world that %s leaves %d goroutines", name, after-before)
		}
	}
}

// Ten thousand programs of a few hosts sleep, and are woken by a context.
func TestManyPrograms(t *testing.T) {
	t.Parallel()
	programs := 10000
	if race.Enabled {
		programs = 2000 // it takes no more than 8128 goroutines
	}
	w := newWorld(t, world.Config{Network: star(4)})
	woken := 0
	stop, end := context.WithCancel(context.Background())
	for i := range programs {
		must(t, w.Go(i%4, func(ctx context.Context, dev *verbs.Device) error {
			if err := w.Sleep(ctx, time.Duration(i)); err != nil {
				return err
			}
			if err := w.Sleep(stop, time.Hour); !errors.Is(err, context.Canceled) {
				return err
			}
			woken++
			return nil
		}))
	}
	w.At(time.Second, end)
	must(t, w.Run())
	if woken != programs || w.Now() != time.Second {
		t.Errorf("%d programs were woken, after %v", woken, w.Now())
	}
}
