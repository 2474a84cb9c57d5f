package network

import (
	"fmt"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// burst lets two to four hosts of a star fill the buffer of their switch: their
// receiver pauses it for a while. The way back is full, too, so pause frames
// wait for a packet. The headroom is what func Headroom says, and less bytes
// fewer. It returns the packets that did not arrive.
func burst(t testing.TB, seed uint64, less int64) (lost uint64) {
	r := event.NewRand(seed, 1)
	pick := func(list ...int64) int64 { return list[r.Uint64n(uint64(len(list)))] }
	senders := int(pick(2, 3, 4))
	rate := pick(10, 25, 40, 100, 400) * gbit
	delay := Time(r.Uint64n(uint64(Time(100_000*8*gbit/rate) * event.Nanosecond)))
	c := Config{MTU: int(pick(1000, 1600, DefaultMTU, 9000)), Seed: seed}
	lossless := Class{
		Lossless: true, Alpha: int8(r.Uint64n(6)) - 4, XONOffset: int64(r.Uint64n(3 * uint64(c.MTU))),
		Headroom: Headroom(rate, delay, c.MTU) - less*int64(c.MTU), Reserve: pick(0, 0, 84, 4096),
	}
	sw := Switch{CutThrough: r.Uint64n(4) == 0}
	sw.Classes[3] = lossless
	ports := int64(senders + 1)
	free := int64(r.Uint64n(100_000))
	sw.Buffer = ports*(lossless.Headroom+lossless.Reserve+int64(c.MTU)) + free
	plain := star(senders+1, sw, rate, delay)
	c.Hosts, c.Switches, c.Cables, c.Tables = plain.Hosts, plain.Switches, plain.Cables, plain.Tables
	n, hosts := build(t, c)

	most := uint64(c.MTU - minWire + 1)
	small := pick(0, 0, 1, int64(most)) // how many bytes packets may differ by
	packets := 10 + int(3*(lossless.Headroom+lossless.Reserve+free)/int64(c.MTU)/2)
	for i := range senders {
		for range packets {
			size := c.MTU - int(r.Uint64n(min(uint64(small)+1, most)))
			hosts[i].packets = append(hosts[i].packets, Packet{Dst: uint16(senders), Size: uint16(size), DSCP: 24})
		}
		for range 2 * packets / senders {
			hosts[senders].packets = append(hosts[senders].packets, Packet{Dst: uint16(i), Size: uint16(c.MTU)})
		}
		n.At(Time(r.Uint64n(uint64(event.Microsecond))), func() { n.Kick(i, 0) })
	}
	n.Pause(senders, 0, 1<<3)
	n.Kick(senders, 0)
	n.At(Time(r.Uint64n(uint64(100*event.Microsecond))), func() { n.Pause(senders, 0, 0) })
	finish(t, n)
	totals := n.Totals()
	if bad := totals.Dropped() - totals.Drops[HeadroomFull] - totals.Drops[IngressFull] - totals.Drops[EgressFull]; bad != 0 {
		t.Fatalf("seed %d: %v", seed, totals)
	}
	for i := range senders {
		lost += uint64(hosts[i].dropped[HeadroomFull])
	}
	return lost
}

// Nothing of a lossless class is lost in 10,000 bursts whose headroom is 2 *
// rate * delay + 2 MTU + a pause frame. With one MTU less, many lose packets.
func TestHeadroomIsEnoughAndNotTooMuch(t *testing.T) {
	t.Parallel()
	const chunks = 4
	bursts := uint64(10_000)
	if testing.Short() {
		bursts = 400
	}
	for chunk := range uint64(chunks) {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			t.Parallel()
			losing, tried := 0, 0
			for seed := chunk; seed < bursts; seed += chunks {
				if lost := burst(t, seed, 0); lost != 0 {
					t.Fatalf("seed %d: %d packets lost", seed, lost)
				}
				if seed%20 == chunk {
					tried++
					if burst(t, seed, 1) != 0 {
						losing++
					}
				}
			}
			if losing*10 < tried {
				t.Errorf("with one MTU less, only %d of %d bursts lose packets", losing, tried)
			}
			t.Logf("with one MTU less, %d of %d bursts lose packets", losing, tried)
		})
	}
}
