package psp_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	wire "github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/psp"
)

// end is one side of a connection in both directions.
type end struct {
	*side
	path   *transport.Path
	to     uint32 // SPI that it seals with first
	peer   netip.Addr
	chain  *wire.Chain // of what it seals, for the test
	opener []*wire.Key // of the generations so far
	seen   map[sealed]bool
}

// sealed is a packet with a key.
type sealed struct{ generation, iv uint64 }

// ends returns a connection whose sides have limits. The generations of one
// direction begin near their end.
func ends(t testing.TB, l psp.Limits) (a, b *end) {
	t.Helper()
	const toA, toB = 0x7e000001, 0x00000002
	chain := func(n byte) *wire.Chain {
		c, err := wire.NewChain(wire.GCM128, append(make([]byte, 15), n))
		check(t, err)
		return c
	}
	make := func(own, peer netip.Addr, into, to uint32) *end {
		e := &end{side: newSide(own), to: to, peer: peer, chain: chain(byte(to)), seen: map[sealed]bool{}}
		e.path = transport.NewPath(own, transport.Path{Dst: peer, SPI: to})
		e.Limits = l
		check(t, e.AcceptChain(peer, into, chain(byte(into))))
		check(t, e.SealChain(peer, to, chain(byte(to)), into))
		return e
	}
	return make(addrA, addrB, toA, toB), make(addrB, addrA, toB, toA)
}

// generation returns which key the side seals with.
func (e *end) generation() uint64 { return e.Generation(e.peer, e.to) }

// packets sends n packets of a side, and returns them one by one. Each opens
// with the key of its generation, and no key has an initialization vector
// twice.
func (e *end) packets(t testing.TB, n int) (all []datagram) {
	t.Helper()
	for _, d := range send(t, e.side, batch(e.path, repeat(8, n)...)) {
		size := d.segment
		if size == 0 {
			size = len(d.data)
		}
		for ; len(d.data) > 0; d.data = d.data[size:] {
			e.record(t, d.data[:size])
			all = append(all, datagram{data: d.data[:size:size], src: d.src})
		}
	}
	if len(all) != n {
		t.Fatalf("%d packets of %d have left", len(all), n)
	}
	return all
}

// record notes a packet of the side. The generation has 8 bits of which it is
// one near that of now.
func (e *end) record(t testing.TB, packet []byte) {
	t.Helper()
	h, _, err := wire.Parse(packet)
	check(t, err)
	g := e.generation()
	g += uint64(int64(wire.Between(h.SPI, wire.Later(e.to, g))))
	for uint64(len(e.opener)) <= g {
		e.opener = append(e.opener, e.chain.Key(e.to))
		e.chain.Next()
	}
	if _, _, err := e.opener[g].Open(nil, packet); err != nil {
		t.Fatalf("a packet of generation %d: %v", g, err)
	}
	one := sealed{g, h.IV}
	if e.seen[one] {
		t.Fatalf("the key of generation %d has sealed two packets with initialization vector %d", g, h.IV)
	}
	e.seen[one] = true
}

// takes has the side receive packets, and returns how many come out.
func (e *end) takes(t testing.TB, all ...datagram) int {
	t.Helper()
	got := e.take(t, all...)
	for i := range got {
		if got[i].SPI != 1|0x7e000000 && got[i].SPI != 2 {
			t.Fatalf("a packet has SPI %08x, want that of the association", got[i].SPI)
		}
	}
	return len(got)
}

// exchange has each side send a packet, which arrives.
func exchange(t testing.TB, a, b *end) {
	t.Helper()
	for _, way := range [][2]*end{{a, b}, {b, a}} {
		if n := way[1].takes(t, way[0].packets(t, 1)...); n != 1 {
			t.Fatalf("a packet of generation %d to a side at %d does not arrive: %+v", way[0].generation(), way[1].generation(), way[1].Counters())
		}
	}
}

// TestGenerationsFollow has 700 generations of one packet of each side, so that
// they come round twice.
func TestGenerationsFollow(t *testing.T) {
	t.Parallel()
	a, b := ends(t, psp.Limits{Packets: 1})
	for i := range 700 {
		exchange(t, a, b)
		if ga, gb := a.generation(), b.generation(); ga != gb || ga < uint64(i) {
			t.Fatalf("after %d packets of each the generations are %d and %d", i+1, ga, gb)
		}
	}
	for _, e := range []*end{a, b} {
		if c := e.Counters(); c.Rekeys != e.generation() || c.Opened != 700 || c.Unknown+c.Ended+c.Forged+c.Replays+c.Stale+c.NoKey != 0 {
			t.Errorf("%+v", c)
		}
	}
}

// TestGenerationsOnABadPath loses, doubles, delays and changes packets, while
// each side goes on to new keys by the number of packets and by wish. No packet
// is opened twice, no two are sealed with the same key and initialization
// vector, the sides are never more than one generation apart, and what is not
// lost, and not late, arrives.
func TestGenerationsOnABadPath(t *testing.T) {
	t.Parallel()
	rounds := 4_000
	if testing.Short() {
		rounds = 500
	}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			badPath(t, rand.New(rand.NewPCG(seed, 7)), rounds)
		})
	}
}

func badPath(t *testing.T, r *rand.Rand, rounds int) {
	a, b := ends(t, psp.Limits{Packets: uint64(1 + r.IntN(40))})
	under := map[*end][]datagram{} // under way to it
	opened := map[*end]map[string]bool{a: {}, b: {}}
	old := map[*end][]datagram{}
	sent := map[*end]uint64{}
	for range rounds {
		from, to := a, b
		if r.IntN(2) == 0 {
			from, to = b, a
		}
		switch r.IntN(8) {
		case 0:
			from.Rekey(from.peer, from.to)
		case 1, 2, 3:
			for _, d := range from.packets(t, 1+r.IntN(30)) {
				sent[from]++
				for range []int{1, 1, 1, 1, 1, 1, 2, 0}[r.IntN(8)] {
					under[to] = append(under[to], d)
				}
				old[to] = append(old[to], d)
			}
		default:
			all := under[to]
			r.Shuffle(len(all), func(i, j int) { // overtaken by a few
				if max(i-j, j-i) < 5 {
					all[i], all[j] = all[j], all[i]
				}
			})
			n := r.IntN(len(all) + 1)
			arrive := all[:n:n]
			under[to] = all[n:]
			for range r.IntN(3) {
				if len(old[to]) > 0 {
					arrive = append(arrive, old[to][r.IntN(len(old[to]))])
					forged := datagram{data: append([]byte{}, arrive[0].data...), src: arrive[0].src}
					forged.data[4] += byte(r.IntN(5)) - 2
					forged.data[len(forged.data)-1-r.IntN(8)] ^= byte(1 + r.IntN(255))
					arrive = append(arrive, forged)
				}
			}
			for _, d := range arrive {
				if to.takes(t, d) == 0 {
					continue
				}
				if opened[to][string(d.data)] {
					t.Fatal("a packet was opened twice")
				}
				opened[to][string(d.data)] = true
			}
		}
		if ga, gb := a.generation(), b.generation(); max(ga, gb)-min(ga, gb) > 1 {
			t.Fatalf("generations %d and %d", ga, gb)
		}
	}
	for range 3 {
		exchange(t, a, b)
	}
	for _, way := range [][2]*end{{a, b}, {b, a}} {
		c := way[1].Counters()
		if c.Opened*10 < sent[way[0]]*7 || c.Ended == 0 || c.Forged == 0 || c.Replays == 0 || c.Rekeys < uint64(rounds)/100 || c.Rekeys != way[1].generation() {
			t.Errorf("of %d packets sent: %+v", sent[way[0]], c)
		}
	}
}

// TestBothBegin has both sides go on at once, with most of what they send lost.
func TestBothBegin(t *testing.T) {
	t.Parallel()
	a, b := ends(t, psp.Limits{})
	exchange(t, a, b)
	for range 300 {
		g := a.generation()
		a.Rekey(a.peer, a.to)
		b.Rekey(b.peer, b.to)
		if ga, gb := a.generation(), b.generation(); ga != g+1 || gb != ga {
			t.Fatalf("generations %d and %d, want %d", ga, gb, g+1)
		}
		a.Rekey(a.peer, a.to) // b has not answered yet
		a.packets(t, 3)       // lost
		b.packets(t, 3)
		if n := b.takes(t, a.packets(t, 1)...); n != 1 || a.generation() != g+1 {
			t.Fatalf("generation %d: %+v", a.generation(), b.Counters())
		}
		// This packet says that b has come to g+1, and a goes on, as
		// was wished.
		if n := a.takes(t, b.packets(t, 1)...); n != 1 || a.generation() != g+2 {
			t.Fatalf("generation %d: %+v", a.generation(), a.Counters())
		}
		exchange(t, a, b)
		if ga, gb := a.generation(), b.generation(); ga != g+2 || gb != ga {
			t.Fatalf("generations %d and %d, want %d", ga, gb, g+2)
		}
		a, b = b, a
	}
}

// TestOldGenerations sends packets of a key again, and for the first time,
// after one new key, after many packets of it, and after two.
func TestOldGenerations(t *testing.T) {
	t.Parallel()
	a, b := ends(t, psp.Limits{})
	turn := func() {
		t.Helper()
		a.Rekey(a.peer, a.to)
		exchange(t, a, b)
	}
	drop := func(why string, d datagram, counter func(*psp.Counters) *uint64) {
		t.Helper()
		was := b.Counters()
		*counter(&was)++
		if n := b.takes(t, d); n != 0 || b.Counters() != was {
			t.Errorf("%s: %d packets:\n%+v, want\n%+v", why, n, b.Counters(), was)
		}
	}
	replays := func(c *psp.Counters) *uint64 { return &c.Replays }
	ended := func(c *psp.Counters) *uint64 { return &c.Ended }

	exchange(t, a, b)
	old := a.packets(t, 4)
	if b.takes(t, old[0]) != 1 {
		t.Fatal("a packet does not arrive")
	}
	turn()
	drop("a packet again after one new key", old[0], replays)
	if b.takes(t, old[1]) != 1 {
		t.Errorf("a packet that was overtaken by a new key: %+v", b.Counters())
	}
	drop("the same again", old[1], replays)
	b.takes(t, a.packets(t, wire.WindowSize)...)
	drop("a packet that comes after a window of the new key", old[2], ended)
	recent := a.packets(t, 2)
	turn()
	drop("again after two new keys", old[0], ended)
	drop("late after two new keys", old[2], ended)
	turn()
	drop("late after two new keys, fast ones", recent[0], ended)
	for range 125 {
		turn()
	}
	// The generation of old[3] has come round.
	drop("after 128 new keys", old[3], func(c *psp.Counters) *uint64 { return &c.Forged })
	drop("after 128 new keys", recent[1], func(c *psp.Counters) *uint64 { return &c.Forged })
	exchange(t, a, b)
}

// TestForgedGenerations sends what was made up for each generation: nothing
// moves, and each packet is counted by its reason.
func TestForgedGenerations(t *testing.T) {
	t.Parallel()
	for _, begin := range []uint64{0, 1, 5, 700} {
		a, b := ends(t, psp.Limits{})
		exchange(t, a, b)
		for range begin {
			b.Rekey(b.peer, b.to)
			exchange(t, a, b)
		}
		exchange(t, a, b)
		packet := a.packets(t, 1)[0]
		const each = 3
		for i := range 128 * each {
			d := datagram{data: append([]byte{}, packet.data...), src: packet.src}
			binary.BigEndian.PutUint32(d.data[4:], wire.Later(a.to, uint64(i/each)))
			binary.BigEndian.PutUint64(d.data[8:], 1<<40+uint64(i))
			b.takes(t, d)
		}
		before := min(begin, 1)
		past := min(begin, 64) - before
		c := b.Counters()
		if want := [3]uint64{(2 + before) * each, past * each, (128 - 2 - before - past) * each}; [3]uint64{c.Forged, c.Ended, c.Unknown} != want || c.Rekeys != begin {
			t.Errorf("at generation %d, forged, ended and unknown of each generation: %d, want %d of %d\n%+v", begin, [3]uint64{c.Forged, c.Ended, c.Unknown}, want, 128*each, c)
		}
		if b.takes(t, packet) != 1 {
			t.Errorf("at generation %d, the next packet does not arrive: %+v", begin, b.Counters())
		}
	}
}

// TestPeerAhead has a peer that goes on to new keys without a reason, which
// costs this side more than a packet.
func TestPeerAhead(t *testing.T) {
	t.Parallel()
	a, b := ends(t, psp.Limits{})
	exchange(t, a, b)
	ahead := a.chain
	seal := func(g uint64) datagram {
		for ahead.Generation() < g {
			ahead.Next()
		}
		h := wire.Header{Next: wire.UDP, SPI: wire.Later(a.to, g), IV: 1}
		return datagram{data: ahead.Key(a.to).Seal(nil, &h, nil, make([]byte, 64)), src: netip.AddrPortFrom(addrA, rocev2.UDPPort)}
	}
	if n := b.takes(t, seal(1)); n != 1 || b.generation() != 1 {
		t.Fatalf("the next generation: %d, %+v", b.generation(), b.Counters())
	}
	for g := range uint64(20) {
		b.takes(t, seal(g+2))
	}
	if c := b.Counters(); c.Unknown != 20 || c.Rekeys != 1 || b.generation() != 1 {
		t.Errorf("a peer that was sent nothing has come to generation %d: %+v", b.generation(), c)
	}
}

// TestSilentPeer has a side that hears nothing of its peer: it seals with its
// key as much as that may, and no more. When the peer answers it goes on.
func TestSilentPeer(t *testing.T) {
	t.Parallel()
	a, b := ends(t, psp.Limits{Packets: 10, Most: 30})
	all := a.packets(t, 28)
	tx := batch(a.path, repeat(8, 5)...)
	a.cable.sent = nil
	err := a.Send(tx)
	var fail *transport.SendError
	if !errors.As(err, &fail) || fail.Index != 2 || fail.Failed != 3 || !errors.Is(err, psp.ErrNoKey) {
		t.Errorf("%v", err)
	}
	for range 100 {
		a.Rekey(a.peer, a.to)
		if err := a.Send(batch(a.path, 8)); !errors.Is(err, psp.ErrNoKey) {
			t.Fatalf("%v", err)
		}
	}
	if c := a.Counters(); c.Sealed != 30 || c.NoKey != 103 || c.Rekeys != 0 {
		t.Errorf("%+v", c)
	}
	b.takes(t, all...)
	if n := a.takes(t, b.packets(t, 1)...); n != 1 || a.generation() != 1 {
		t.Errorf("generation %d: %+v", a.generation(), a.Counters())
	}
	exchange(t, a, b)
}

// TestLimits has values of Limits, and what holds.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limits psp.Limits
		sealed uint64
	}{{psp.Limits{Packets: 7, Most: 3}, 3}, {psp.Limits{Most: 1}, 1}, {psp.Limits{Packets: 1, Most: 9}, 9}} {
		a, _ := ends(t, c.limits)
		for range 20 {
			a.Send(batch(a.path, 8))
		}
		if got := a.Counters(); got.Sealed != c.sealed || got.NoKey != 20-c.sealed {
			t.Errorf("%+v: %+v, want %d sealed", c.limits, got, c.sealed)
		}
	}
}

// TestOneDirection has an association of one key: it seals what that may.
func TestOneDirection(t *testing.T) {
	t.Parallel()
	a, b := pair(t, wire.GCM128)
	a.Limits = psp.Limits{Packets: 2, Most: 5}
	if got := b.take(t, send(t, a, batch(sealedPath(spiAB), repeat(8, 5)...))...); len(got) != 5 {
		t.Errorf("%d packets of 5", len(got))
	}
	a.Rekey(addrB, spiAB)
	if err := a.Send(batch(sealedPath(spiAB), 8)); !errors.Is(err, psp.ErrNoKey) {
		t.Errorf("packet 6: %v", err)
	}
	if c := a.Counters(); c.Rekeys != 0 {
		t.Errorf("%+v", c)
	}
}

// TestOneKeyOrMore has associations of one key beside those of chains, with the
// same numbers: the highest bit of the SPI says which.
func TestOneKeyOrMore(t *testing.T) {
	t.Parallel()
	a, b := ends(t, psp.Limits{Packets: 1})
	own := func(n byte) *wire.Key {
		k, err := wire.NewKey(wire.GCM128, append(make([]byte, 15), n))
		check(t, err)
		return k
	}
	paths := []*transport.Path{a.path}
	for g := range uint32(3) {
		spi := wire.SecondMaster | (128-1+g)&127<<24 | wire.Number(a.to)
		check(t, errors.Join(b.Accept(addrA, spi, own(byte(100+g))), a.Seal(addrB, spi, own(byte(100+g)))))
		if err := b.Accept(addrC, spi, own(50)); !errors.Is(err, psp.ErrTaken) {
			t.Errorf("SPI %08x twice: %v", spi, err)
		}
		paths = append(paths, transport.NewPath(addrA, transport.Path{Dst: addrB, SPI: spi}))
	}
	for range 200 {
		tx := transport.NewTxBatch(1 << 16)
		for i, p := range paths {
			tx.Commit(copy(tx.Room(), packet(i, 8)), p)
		}
		for i, p := range b.take(t, send(t, a.side, tx)...) {
			if p.SPI != paths[i].SPI {
				t.Fatalf("packet %d has SPI %08x, want %08x", i, p.SPI, paths[i].SPI)
			}
		}
		if n := a.takes(t, b.packets(t, 1)...); n != 1 {
			t.Fatalf("%+v", a.Counters())
		}
	}
	if c := b.Counters(); c.Opened != 800 || c.Rekeys < 199 || c.Unknown+c.Forged+c.Ended != 0 {
		t.Errorf("%+v", c)
	}
	chain := func() *wire.Chain {
		c, err := wire.NewChain(wire.GCM128, make([]byte, 16))
		check(t, err)
		return c
	}
	// Without the bit an association of one key has no generations either.
	check(t, errors.Join(b.Accept(addrA, 9, own(9)), a.Seal(addrB, 9, own(9))))
	d := send(t, a.side, batch(sealedPath(9), 8))[0]
	binary.BigEndian.PutUint32(d.data[4:], wire.Later(9, 1))
	if n := len(b.take(t, d)); n != 0 || b.Counters().Unknown != 1 {
		t.Errorf("%d packets of another generation than that of the only key: %+v", n, b.Counters())
	}
	one := paths[1].SPI
	check(t, a.Accept(addrB, 5, own(7)))
	for name, err := range map[string]error{
		"accept a chain with the highest bit":           a.AcceptChain(addrB, one, chain()),
		"seal with a chain with the highest bit":        a.SealChain(addrC, one, chain(), 0x7e000001),
		"seal with a chain, another peer":               a.SealChain(addrC, 9, chain(), 0x7e000001),
		"seal with a chain beside what is not accepted": a.SealChain(addrB, 9, chain(), 77),
		"seal with a chain beside one key":              a.SealChain(addrB, 9, chain(), 5),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
