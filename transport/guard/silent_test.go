package guard_test

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport/guard"
)

// TestSilence: a sender that hears nothing back asks for keys by itself, less
// and less often; one that hears something does not.
func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(addrA, 0, 0, nil), newSide(addrB, 0, 0, nil)
		agree(a, b, 1, 1, 1)
		const step = 250 * time.Millisecond
		sends := func(d time.Duration, answered bool) int {
			before := len(a.asks())
			for range d / step {
				b.take(t, a.sends(t, addrB, packet(7, 1, 40))...)
				if answered {
					a.take(t, b.sends(t, addrA, packet(7, 1, 40))...)
				}
				time.Sleep(step)
			}
			return len(a.asks()) - before
		}
		if n := sends(time.Minute, true); n != 0 {
			t.Errorf("asked %d times, though the peer answers", n)
		}
		if n := sends(time.Second, false); n != 1 {
			t.Errorf("asked %d times in the first second", n)
		}
		if asked := a.asks(); len(asked) == 0 || asked[0] != "10.0.0.2 2" {
			t.Errorf("asked for %v", asked)
		}
		if n := sends(10*time.Minute, false); n < 14 || n > 16 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		agree(a, b, 3, 1, 1)
		if n := sends(10*time.Second, false); n > 1 {
			t.Errorf("asked %d times in ten seconds: new keys change nothing of a peer that need not answer", n)
		}
		sends(time.Second, true)
		if n := sends(time.Second, false); n != 1 {
			t.Errorf("asked %d times in the second after it has answered", n)
		}
	})
}

// TestSilentSlot: a slot of the peer that answers says nothing of another one.
func TestSilentSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(addrA, 0, 0, nil), newSide(addrB, 70, 0, nil)
		agree(a, b, 1, 1, 256)
		for range 10 {
			b.take(t, a.sends(t, addrB, packet(70, 1, 40), packet(71, 1, 40))[0])
			a.take(t, b.sends(t, addrA, packet(7, 1, 40))...)
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(a.asks()); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// TestPeersBeforeStrangers: however many strangers seem to have unknown keys, a
// peer that there are keys of is asked at once.
func TestPeersBeforeStrangers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(addrA, 0, 0, nil), newSide(addrB, 0, 0, nil)
		agree(a, b, 1, 1, 1)
		head := psp.Header{Next: psp.UDP, SPI: psp.SecondMaster | 77<<16, IV: 1}
		forged := func(from netip.Addr) {
			b.take(t, datagram{data: append(head.AppendTo(nil), make([]byte, 64)...), src: netip.AddrPortFrom(from, 1)})
		}
		for second := range 10 {
			for i := range 1000 {
				forged(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}))
			}
			for range 1000 { // nor does one peer keep out the others
				forged(addrC)
			}
			forged(addrA)
			n := 0
			for _, asked := range b.asks() {
				if asked == "10.0.0.1 1" {
					n++
				}
			}
			if n != second+1 {
				t.Errorf("in second %d the peer was asked %d times", second, n)
			}
			time.Sleep(time.Second)
		}
		if n := len(b.asks()); n > 1100 {
			t.Errorf("asked %d times in ten seconds", n)
		}
	})
}

// TestDeadPeersAskForThemselves: a peer that is not there has no other one
// wait.
func TestDeadPeersAskForThemselves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newSide(addrA, 0, 0, nil)
		defer a.Close()
		a.sends(t, addrB, packet(7, 1, 40))
		time.Sleep(500 * time.Millisecond)
		a.sends(t, addrC, packet(7, 1, 40))
		if !slices.Contains(a.asks(), "10.0.0.3 0") {
			t.Errorf("asked for %v", a.asks())
		}
		time.Sleep(guard.WaitTime + time.Second)
	})
}
