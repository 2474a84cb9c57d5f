package verbs_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/internal/testcable"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

var addrsOfSealed = [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}

// sealedSide is one end of a connection, and its cable.
type sealedSide struct {
	verbstest.Side
	cable *testcable.Cable
}

// sealedPair returns two connected sides, whose packets are not sealed yet.
func sealedPair(t *testing.T, n fabric.Config) (a, b *sealedSide) {
	t.Helper()
	return sealedPairOf(t, n, verbs.Config{Sealing: true})
}

func sealedPairOf(t *testing.T, n fabric.Config, c verbs.Config) (a, b *sealedSide) {
	t.Helper()
	sw := fabric.NewSwitch(n)
	var all [2]*sealedSide
	for i, addr := range addrsOfSealed {
		s := &sealedSide{}
		port, err := sw.Attach(addr)
		check(t, err)
		s.Port, s.cable = port, testcable.New(port)
		s.Dev, err = verbs.OpenLink(s.cable, c)
		check(t, err)
		t.Cleanup(func() { check(t, s.Dev.Close()) })
		s.PD, err = s.Dev.AllocPD()
		check(t, err)
		s.CQ, err = s.Dev.CreateCQ(1024)
		check(t, err)
		s.MR, err = s.PD.RegisterMemory(make([]byte, 1<<20), verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
		check(t, err)
		s.QP, err = s.PD.CreateQP(verbs.QPConfig{SendCQ: s.CQ, RecvCQ: s.CQ})
		check(t, err)
		all[i] = s
	}
	verbstest.Connect(t, all[0].QP, all[1].QP)
	return all[0], all[1]
}

// keyOf is the key of an association in tests.
func keyOf(spi uint32, v verbs.SealVersion) []byte {
	return bytes.Repeat([]byte{byte(spi), byte(spi >> 24), 7, 9}, 8)[:v.KeyLen()]
}

// sealing returns how packets of a queue pair are sealed.
func sealing(t testing.TB, q *verbs.QP) *verbs.Sealing {
	t.Helper()
	s, err := q.Sealing()
	check(t, err)
	return s
}

// seal has two queue pairs seal their packets.
func seal(t testing.TB, a, b *verbs.QP, v verbs.SealVersion) {
	t.Helper()
	sa, sb := sealing(t, a), sealing(t, b)
	toA, toB := sa.SPI(0), sb.SPI(0)
	intoA, intoB := verbs.Association{SPI: toA, Version: v, Key: keyOf(toA, v)}, verbs.Association{SPI: toB, Version: v, Key: keyOf(toB, v)}
	check(t, errors.Join(sa.Accept(intoA), sb.Accept(intoB), sa.Seal(intoB), sb.Seal(intoA)))
}

func TestSealed(t *testing.T) {
	t.Parallel()
	for _, v := range []verbs.SealVersion{verbs.SealGCM128, verbs.SealGCM256, verbs.SealGMAC128, verbs.SealGMAC256} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { sealedTraffic(t, v) })
		})
	}
}

func sealedTraffic(t *testing.T, v verbs.SealVersion) {
	a, b := sealedPair(t, fabric.Config{})
	secret := []byte("a secret that only the peer may read, also where an attacker sees all packets")
	write := func() {
		t.Helper()
		check(t, a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: fillWith(a.MR, secret), Remote: b.MR.RemoteAt(0)}))
		check(t, a.Next(t).Err())
		check(t, b.QP.PostSend(verbs.SendWR{Opcode: verbs.OpRead, Signaled: true, SGList: sgl(b.MR, 4096, 1<<19), Remote: a.MR.RemoteAt(0)}))
		check(t, b.Next(t).Err())
	}
	visible := func(side *sealedSide) (seen bool) {
		for _, p := range side.cable.Take() {
			seen = seen || bytes.Contains(p, secret[:16])
		}
		return seen
	}
	write()
	if !visible(a) {
		t.Error("in clear the secret was not seen: the test is wrong")
	}
	if got := sealing(t, a.QP).State(); got != verbs.SecurityClear {
		t.Errorf("security %v before there is a key", got)
	}
	seal(t, a.QP, b.QP, v)
	write()
	if got := visible(a); got == v.Encrypts() {
		t.Errorf("%v: the secret can be read: %v", v, got)
	}
	if sa, sb := sealing(t, a.QP).State(), sealing(t, b.QP).State(); sa != verbs.SecuritySealed || sb != verbs.SecuritySealed {
		t.Errorf("security %v and %v", sa, sb)
	}
	ca, cb := a.Dev.SealCounters(), b.Dev.SealCounters()
	if ca.Sealed == 0 || ca.Sealed != cb.Opened || cb.Sealed != ca.Opened || cb.Forged+ca.Forged+ca.Unknown+cb.Unknown != 0 {
		t.Errorf("%+v\n%+v", ca, cb)
	}

	// New keys, which either side wants: nothing is lost.
	for g := range uint64(4) {
		for _, s := range []*sealedSide{a, b} {
			sealing(t, s.QP).Rekey()
			write()
		}
		if ga, gb := sealing(t, a.QP).Generation(), sealing(t, b.QP).Generation(); ga != 2*g+2 || gb != ga {
			t.Errorf("generations %d and %d after %d rekeys", ga, gb, 2*g+2)
		}
	}
	if s := a.QP.Stats(); s.Retransmits != 0 {
		t.Errorf("%d packets were sent again", s.Retransmits)
	}
	if !v.Encrypts() {
		return
	}
	for _, p := range a.cable.Take() {
		if !transport.IsSealed(p) {
			t.Fatalf("in clear: %x", p)
		}
	}
}

// fillWith puts data at the begin of a region.
func fillWith(m *verbs.MR, data []byte) []verbs.SGE {
	copy(m.Bytes(), data)
	return sgl(m, 0, 1<<19)
}

func sgl(m *verbs.MR, offset, n int) []verbs.SGE { return []verbs.SGE{m.Slice(offset, n)} }

// TestClearIntoSealed has an attacker that knows every number and PSN send
// packets in clear, and replays sealed ones: nothing changes.
func TestClearIntoSealed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := sealedPair(t, fabric.Config{})
		write := func(n int) {
			t.Helper()
			check(t, a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: sgl(a.MR, 0, n), Remote: b.MR.RemoteAt(0)}))
			check(t, a.Next(t).Err())
		}
		write(8)
		clear := a.cable.Take()[0]
		seal(t, a.QP, b.QP, verbs.SealGCM128)
		write(100_000)
		sealed := a.cable.Take()
		was := bytes.Clone(b.MR.Bytes())
		before, stats := b.Dev.Stats().Drops, b.QP.Stats()
		from := transport.RxPacket{Src: addrsOfSealed[0], Dst: addrsOfSealed[1], SrcPort: 4791, ICRC: transport.ICRCVerified}
		r := rand.New(rand.NewPCG(1, 1))
		psn := a.QP.Query().SQPSN
		const forged = 1000
		for range forged {
			p := from
			p.Data = bytes.Clone(clear)
			n := uint32(psn) + uint32(r.IntN(8)) - 4
			p.Data[9], p.Data[10], p.Data[11] = byte(n>>16), byte(n>>8), byte(n)
			p.Data[len(p.Data)-5] ^= 0xff
			b.cable.Arrive(p)
		}
		from.ICRC = transport.ICRCSealed
		for _, data := range sealed {
			p := from
			p.Data = data
			b.cable.Arrive(p, p)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !bytes.Equal(b.MR.Bytes(), was) {
			t.Error("memory has changed")
		}
		if now := b.QP.Stats(); now != stats {
			t.Errorf("the queue pair has noticed:\n%+v\n%+v", stats, now)
		}
		drops := b.Dev.Stats().Drops
		if got := drops["wrong_security"] - before["wrong_security"]; got != forged {
			t.Errorf("%d dropped of %d in clear: %v", got, forged, drops)
		}
		if c := b.Dev.SealCounters(); c.Replays != uint64(2*len(sealed)) {
			t.Errorf("%+v of %d replays", c, 2*len(sealed))
		}
		write(8)
	})
}

// TestSealedOnABadPath has packets lost, overtaken, doubled and changed below.
func TestSealedOnABadPath(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := fabric.Config{Seed: seed}
				n.Port = fabric.PortConfig{Loss: 0.05, Reorder: 0.05, Duplicate: 0.05, Corrupt: 0.01, Delay: 20 * time.Microsecond}
				a, b := sealedPair(t, n)
				r := rand.NewChaCha8([32]byte{byte(seed)})
				for i := range 40 {
					switch i {
					case 10:
						seal(t, a.QP, b.QP, verbs.SealGCM128)
					case 20:
						sealing(t, b.QP).Rekey()
					}
					r.Read(a.MR.Bytes()[:200_000])
					check(t, a.QP.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Signaled: true, SGList: sgl(a.MR, 0, 200_000), Remote: b.MR.RemoteAt(0)}))
					check(t, a.Next(t).Err())
					if !bytes.Equal(a.MR.Bytes()[:200_000], b.MR.Bytes()[:200_000]) {
						t.Fatalf("message %d has come with other bytes", i)
					}
				}
				if c := b.Dev.SealCounters(); c.Replays == 0 || c.Opened == 0 {
					t.Errorf("%+v: the path was not as bad as it should be", c)
				}
			})
		})
	}
}

func TestSealErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _ := sealedPair(t, fabric.Config{})
		own := sealing(t, a.QP)
		good := verbs.Association{SPI: own.SPI(0), Key: make([]byte, 16)}
		idle, err := a.PD.CreateQP(verbs.QPConfig{SendCQ: a.CQ, RecvCQ: a.CQ})
		check(t, err)
		for _, c := range []struct {
			name string
			err  error
			want string
		}{
			{"another number", own.Accept(verbs.Association{SPI: 5, Key: good.Key}), "Sealing.SPI"},
			{"a short key", own.Accept(verbs.Association{SPI: good.SPI, Key: good.Key[:8]}), "8 bytes"},
			{"no such version", own.Seal(verbs.Association{SPI: 5, Version: 9, Key: good.Key}), "version 9"},
			{"SPI 0", own.Seal(verbs.Association{Key: good.Key}), "SPI 0"},
			{"without a peer", sealing(t, idle).Accept(verbs.Association{SPI: sealing(t, idle).SPI(0), Key: good.Key}), "not connected"},
		} {
			if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, c.err, c.want)
			}
		}
		check(t, own.Accept(good))
		if err := own.Accept(good); err == nil || !strings.Contains(err.Error(), "Sealing.Rekey") {
			t.Errorf("accepts twice: %v", err)
		}
		if text := fmt.Sprintf("%v %+v %#v %s", good, good, good, good); strings.Contains(text, "[0 0") || strings.Contains(text, "0x0, 0x0") {
			t.Errorf("it prints the key: %s", text)
		}
		plain, _ := verbstest.NewPair(t)
		if _, err := plain.QP.Sealing(); !errors.Is(err, verbs.ErrNotSealing) {
			t.Errorf("without Config.Sealing: %v", err)
		}
	})
	if _, err := verbs.OpenAddr(netip.MustParseAddr("127.0.0.1"), verbs.Config{Sealing: true, SharedMemory: true}); err == nil || !strings.Contains(err.Error(), "SharedMemory") {
		t.Errorf("with shared memory: %v", err)
	}
}
