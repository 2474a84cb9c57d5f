package verbs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/internal/race"
	format "github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// attacked is a secured connection whose packets an attacker has, and which
// sends what it likes with the addresses of both sides.
type attacked struct {
	t        *testing.T
	sides    [2]*sealedSide
	captured [2][][]byte // what each side was sent
	before   [2]sideState
}

// sideState is what an attack must not change.
type sideState struct {
	memory     []byte
	stats      verbs.QPStats
	rq, sq     verbs.PSN
	state      verbs.State
	generation uint64
}

// newAttacked returns a connection that has new keys each 1000 packets.
func newAttacked(t *testing.T) *attacked {
	t.Helper()
	a, b := sealedPairOf(t, fabric.Config{}, verbs.Config{Sealing: true, RekeyPackets: 1000})
	seal(t, a.QP, b.QP, verbs.SealGCM128)
	at := &attacked{t: t, sides: [2]*sealedSide{a, b}}
	a.cable.Take()
	b.cable.Take()
	return at
}

// work has both sides do operations of all kinds, whose packets are captured.
func (at *attacked) work(ops int) {
	at.t.Helper()
	for i := range ops {
		from, to := at.sides[i/4%2], at.sides[1-i/4%2]
		wr := verbs.SendWR{Signaled: true, SGList: sgl(from.MR, 4096, 100+2000*(i/8%2)), Remote: to.MR.RemoteAt(64 << 10)}
		rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)}).Read(from.MR.Bytes()[4096:8192])
		switch i % 4 {
		case 0:
			wr.Opcode = verbs.OpWrite
		case 1:
			wr.Opcode = verbs.OpRead
		case 2:
			wr.Opcode, wr.SGList, wr.CompareAdd = verbs.OpFetchAdd, sgl(from.MR, 0, 8), 1
		case 3:
			wr.Opcode = verbs.OpSend
			check(at.t, to.QP.PostRecv(verbs.RecvWR{SGList: sgl(to.MR, 128<<10, 4096)}))
		}
		check(at.t, from.QP.PostSend(wr))
		wc := from.Next(at.t)
		check(at.t, wc.Err())
		if wr.Opcode == verbs.OpSend {
			wc := to.Next(at.t)
			check(at.t, wc.Err())
		}
	}
	time.Sleep(time.Second) // the last acknowledgement has come
	for i, s := range at.sides {
		at.captured[1-i] = append(at.captured[1-i], s.cable.Take()...)
	}
}

func (at *attacked) stateOf(i int) sideState {
	s := at.sides[i]
	q := s.QP.Query()
	return sideState{bytes.Clone(s.MR.Bytes()), s.QP.Stats(), q.RQPSN, q.SQPSN, q.State, sealing(at.t, s.QP).Generation()}
}

// begin notes the state before an attack.
func (at *attacked) begin() {
	for i := range at.sides {
		at.before[i] = at.stateOf(i)
		at.sides[i].cable.Take()
	}
}

// arrives has packets arrive at side i, as if its peer, or another address, had
// sent them.
func (at *attacked) arrives(i int, src netip.Addr, all [][]byte) {
	const atOnce = 250
	for len(all) > 0 {
		n := min(len(all), atOnce)
		packets := make([]transport.RxPacket, n)
		for j, data := range all[:n] {
			packets[j] = transport.RxPacket{Data: data, Src: src, Dst: addrsOfSealed[i], SrcPort: 4791, ICRC: transport.ICRCVerified}
			if transport.IsSealed(data) {
				packets[j].ICRC = transport.ICRCSealed
			}
		}
		at.sides[i].cable.Arrive(packets...)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		all = all[n:]
	}
}

// holds reports what an attack has changed: nothing in the memory, no
// completion, no state, no packet in answer.
func (at *attacked) holds(why string) {
	at.t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	for i, s := range at.sides {
		was, is := at.before[i], at.stateOf(i)
		if !bytes.Equal(was.memory, is.memory) {
			at.t.Errorf("%s: memory of side %d has changed", why, i)
		}
		was.memory, is.memory = nil, nil
		if fmt.Sprint(was) != fmt.Sprint(is) {
			at.t.Errorf("%s: side %d has noticed:\n%+v\n%+v", why, i, was, is)
		}
		var wc [1]verbs.WC
		if s.CQ.Poll(wc[:]) != 0 {
			at.t.Errorf("%s: side %d has a completion: %+v", why, i, wc)
		}
		if sent := s.cable.Take(); len(sent) > 0 {
			at.t.Errorf("%s: side %d has sent %d packets", why, i, len(sent))
		}
	}
}

// dropped is how many packets a side has dropped, by reasons.
func dropped(s *sealedSide) map[string]uint64 {
	all := map[string]uint64{}
	c := s.Dev.SealCounters()
	c.Each(func(name string, n uint64) { all[name] = n })
	for name, n := range s.Dev.Stats().Drops {
		all[name] = n
	}
	return all
}

// counts reports an error unless a side has counted a number of packets since
// before, all by the reasons.
func counts(t *testing.T, why string, s *sealedSide, before map[string]uint64, want int, reasons ...string) {
	t.Helper()
	sum, counted := 0, map[string]uint64{}
	for name, n := range dropped(s) {
		if n == before[name] {
			continue
		}
		counted[name] = n - before[name]
		if slices.Contains(reasons, name) {
			sum += int(counted[name])
		} else {
			sum = -1 << 30
		}
	}
	if sum != want {
		t.Errorf("%s: counted are %v, want %d of %v", why, counted, want, reasons)
	}
}

// TestMillionReplays has an attacker send all packets of a connection again, to
// both sides, a million of them: at once, after one new key, after some, and
// after 128, when the generation has come round.
func TestMillionReplays(t *testing.T) {
	t.Parallel()
	replays := 1_000_000
	if testing.Short() || race.Enabled {
		replays = 20_000
	}
	synctest.Test(t, func(t *testing.T) {
		at := newAttacked(t)
		at.work(200)
		stored := at.captured
		ofKeys := func(n int) {
			for range n {
				sealing(t, at.sides[0].QP).Rekey()
				at.work(8)
			}
		}
		for _, c := range []struct {
			why  string
			keys int
			want []string
		}{
			{"at once", 0, []string{"psp_replayed"}},
			{"after one key", 1, []string{"psp_replayed"}},
			{"after two keys", 1, []string{"psp_ended"}},
			{"after 64 keys", 62, []string{"psp_ended"}},
			{"after 65 keys", 1, []string{"psp_unknown_spi"}},
			// The initialization vectors of some have come with
			// this key.
			{"after 128 keys", 63, []string{"psp_forged", "psp_replayed"}},
		} {
			ofKeys(c.keys)
			at.begin()
			for i, s := range at.sides {
				before, sent := dropped(s), 0
				for sent < replays/12 {
					at.arrives(i, addrsOfSealed[1-i], stored[i])
					sent += len(stored[i])
				}
				counts(t, c.why, s, before, sent, c.want...)
			}
			at.holds(c.why)
		}
		at.work(40)
	})
}

// TestEveryByteChanged has an attacker change each byte of packets of all kinds
// that have not come yet, by one bit and by all.
func TestEveryByteChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := newAttacked(t)
		at.work(16)
		at.begin()
		for i, s := range at.sides {
			before, sent := dropped(s), uint64(0)
			spi := sealing(t, s.QP).SPI(0)
			chain, err := format.NewChain(verbs.SealGCM128, keyOf(spi, verbs.SealGCM128))
			check(t, err)
			key := chain.Key(spi)
			for n, p := range at.captured[i] {
				// The packet as it would come next, had the
				// peer sent it.
				_, inside, err := key.Open(nil, p)
				check(t, err)
				p = key.Seal(nil, &format.Header{Next: format.UDP, SPI: spi, IV: uint64(1000 + n)}, inside[:8], inside[8:])
				var changed [][]byte
				for at := range p {
					for _, bits := range []byte{1 << (at % 8), 0xff} {
						c := bytes.Clone(p)
						c[at] ^= bits
						changed = append(changed, c)
					}
				}
				sent += uint64(len(changed))
				at.arrives(i, addrsOfSealed[1-i], changed)
			}
			var drops uint64
			for name, n := range dropped(s) {
				drops += n - before[name]
			}
			if drops != sent || dropped(s)["psp_forged"]-before["psp_forged"] < sent*9/10 {
				t.Errorf("%d of %d packets are counted as dropped: %v", drops, sent, dropped(s))
			}
		}
		at.holds("packets with a byte changed")
		at.work(40)
	})
}

// TestForgedSPIs has an attacker send packets with new initialization vectors
// and SPIs of all generations, of another queue pair, of none, and from another
// address; and packets in clear of all opcodes, with PSNs that are due.
func TestForgedSPIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := newAttacked(t)
		other := [2]*verbs.QP{} // another connection of the same devices
		for i, s := range at.sides {
			q, err := s.PD.CreateQP(verbs.QPConfig{SendCQ: s.CQ, RecvCQ: s.CQ})
			check(t, err)
			other[i] = q
		}
		verbstest.Connect(t, other[0], other[1])
		seal(t, other[0], other[1], verbs.SealGCM128)
		at.work(40)
		b := at.sides[1]
		with := func(spi uint32, n int) (all [][]byte) {
			for i := range n {
				p := bytes.Clone(at.captured[1][i%len(at.captured[1])])
				binary.BigEndian.PutUint32(p[4:], spi)
				binary.BigEndian.PutUint64(p[8:], 1<<32+uint64(i))
				all = append(all, p)
			}
			return all
		}
		own := sealing(t, b.QP).SPI(0)
		peer := addrsOfSealed[0]
		for _, c := range []struct {
			why  string
			src  netip.Addr
			spi  uint32
			want string
		}{
			{"the key of now", peer, own, "psp_forged"},
			{"the next key", peer, format.Later(own, 1), "psp_forged"},
			{"a key that was not", peer, format.Later(own, 127), "psp_unknown_spi"},
			{"one key with the number", peer, own | format.SecondMaster, "psp_unknown_spi"},
			{"a far key", peer, format.Later(own, 2), "psp_unknown_spi"},
			{"another connection", peer, sealing(t, other[1]).SPI(0), "psp_forged"},
			{"no connection", peer, 0x00abcdef, "psp_unknown_spi"},
			{"SPI 0", peer, 0, "psp_unknown_spi"},
			{"another address", netip.MustParseAddr("192.0.2.3"), own, "psp_wrong_peer"},
		} {
			at.begin()
			before := dropped(b)
			at.arrives(1, c.src, with(c.spi, 2000))
			counts(t, c.why, b, before, 2000, c.want)
			at.holds(c.why)
		}
		at.begin()
		before := dropped(b)
		var clear [][]byte
		for opcode := range 32 { // of RC
			for psn := range 64 {
				p := make([]byte, 64)
				p[0], p[2], p[3] = byte(opcode), 0xff, 0xff
				binary.BigEndian.PutUint32(p[4:], uint32(b.QP.QPN()))
				binary.BigEndian.PutUint32(p[8:], uint32(b.QP.Query().RQPSN.Add(psn-16))|1<<31)
				clear = append(clear, p)
			}
		}
		at.arrives(1, peer, clear)
		drops := dropped(b)
		if n := drops["wrong_security"] - before["wrong_security"]; n < uint64(len(clear))*2/3 {
			t.Errorf("in clear: %d of %d, %v", n, len(clear), drops)
		}
		at.holds("packets in clear")
		at.work(40)
	})
}

// TestWithheldForTheNext has an attacker withhold packets of a connection, and
// send them when its queue pairs have gone back to RESET and have the next
// connection, with the same numbers: they are not taken, in clear nor sealed,
// as the key is gone.
func TestWithheldForTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := newAttacked(t)
		at.work(16)
		a, b := at.sides[0], at.sides[1]
		spi, first := sealing(t, b.QP).SPI(0), keyOf(sealing(t, b.QP).SPI(0), verbs.SealGCM128)
		chain, err := format.NewChain(verbs.SealGCM128, first)
		check(t, err)
		key, iv := chain.Key(spi), uint64(1000)
		_, write, err := key.Open(nil, at.captured[1][0])
		check(t, err)
		// withheld returns the first packet, a WRITE, as the peer would
		// have sealed it next, with the PSN that is due.
		withheld := func() []byte {
			iv++
			inside := bytes.Clone(write)
			binary.BigEndian.PutUint32(inside[8+8:], uint32(b.QP.Query().RQPSN)|1<<31)
			inside[len(inside)-9] ^= 0xff // of the payload
			return key.Seal(nil, &format.Header{Next: format.UDP, SPI: spi, IV: iv}, inside[:8], inside[8:])
		}
		try := func(why, want string) {
			t.Helper()
			at.begin()
			before := dropped(b)
			at.arrives(1, addrsOfSealed[0], [][]byte{withheld()})
			counts(t, why, b, before, 1, want)
			at.holds(why)
		}
		reconnect := func() {
			reset := &verbs.Attr{State: verbs.StateReset}
			check(t, errors.Join(a.QP.Modify(reset, verbs.AttrState), b.QP.Modify(reset, verbs.AttrState)))
			verbstest.Connect(t, a.QP, b.QP)
		}
		reconnect()
		try("the next connection is in clear", "psp_unknown_spi")
		sa, sb := sealing(t, a.QP), sealing(t, b.QP)
		toA, toB := verbs.Association{SPI: sa.SPI(0), Key: make([]byte, 16)}, verbs.Association{SPI: sb.SPI(0), Key: make([]byte, 16)}
		toA.Key[0], toB.Key[0] = 1, 2
		check(t, errors.Join(sa.Accept(toA), sb.Accept(toB)))
		try("the next connection accepts sealed packets", "psp_forged")
		check(t, errors.Join(sa.Seal(toB), sb.Seal(toA)))
		at.work(8)
		try("the next connection is sealed", "psp_forged")

		reconnect()
		chain, err = format.NewChain(verbs.SealGCM128, toB.Key)
		check(t, err)
		key = chain.Key(spi)
		try("the connection after that is in clear", "psp_unknown_spi")
	})
}

// TestPSNComesRound has a connection whose PSNs come round, all 2^24 of them:
// packets with PSNs that are due again are replays.
func TestPSNComesRound(t *testing.T) {
	t.Parallel()
	if testing.Short() || race.Enabled || strconv.IntSize == 32 { // there AES is slow, too
		t.Skip("16 million packets take half a minute")
	}
	synctest.Test(t, func(t *testing.T) {
		at := newAttacked(t)
		a, b := at.sides[0], at.sides[1]
		reset := &verbs.Attr{State: verbs.StateReset}
		check(t, errors.Join(a.QP.Modify(reset, verbs.AttrState), b.QP.Modify(reset, verbs.AttrState)))
		verbstest.Connect(t, a.QP, b.QP, verbs.WithMTU(verbs.MTU256))
		sa, sb := sealing(t, a.QP), sealing(t, b.QP)
		toA, toB := verbs.Association{SPI: sa.SPI(0), Key: make([]byte, 16)}, verbs.Association{SPI: sb.SPI(0), Key: make([]byte, 16)}
		toB.Key[0] = 1
		check(t, errors.Join(sa.Accept(toA), sb.Accept(toB), sa.Seal(toB), sb.Seal(toA)))
		write := func(n int) {
			check(t, a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: sgl(a.MR, 0, n), Remote: b.MR.RemoteAt(0)}))
			wc := a.Next(t)
			check(t, wc.Err())
		}
		begin := b.QP.Query().RQPSN
		write(200 * 256)
		stored := a.cable.Take()
		const message = 4096
		for range 1<<24/message - 1 {
			write(message * 256)
			a.cable.Take()
			b.cable.Take()
		}
		write((message - 200) * 256)
		if got := b.QP.Query().RQPSN; got != begin {
			t.Fatalf("PSN %v is due, want %v again", got, begin)
		}
		at.captured = [2][][]byte{}
		at.begin()
		for i := range a.MR.Bytes() {
			a.MR.Bytes()[i] ^= 0x5a
		}
		at.before[0] = at.stateOf(0)
		before := dropped(b)
		for range 100 {
			at.arrives(1, addrsOfSealed[0], stored)
		}
		n := uint64(100 * len(stored))
		now := dropped(b)
		if now["psp_ended"]+now["psp_unknown_spi"]+now["psp_forged"]-before["psp_ended"]-before["psp_unknown_spi"]-before["psp_forged"] != n {
			t.Errorf("%d replays: %v, before %v", n, now, before)
		}
		at.holds("when the PSN has come round")
	})
}
