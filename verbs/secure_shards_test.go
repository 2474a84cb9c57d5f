package verbs_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// shardedSide is a device with several queue pairs, each with memory and a
// completion queue of its own.
func shardedSide(t *testing.T, pairs int) (sides []verbstest.Side) {
	t.Helper()
	n := rand.Uint32()
	addr := netip.AddrFrom4([4]byte{127, byte(n>>16)%250 + 2, byte(n >> 8), byte(n)%250 + 2})
	cfg := verbs.Config{Sealing: true, Shards: 4, RekeyPackets: 300}
	dev, err := verbs.OpenAddr(addr, cfg)
	if errors.Is(err, errors.ErrUnsupported) { // the link of this system has no shards
		cfg.Shards = 0
		dev, err = verbs.OpenAddr(addr, cfg)
	}
	check(t, err)
	t.Cleanup(func() { check(t, dev.Close()) })
	pd, err := dev.AllocPD()
	check(t, err)
	for i := range pairs {
		s := verbstest.Side{Dev: dev, PD: pd}
		s.CQ, err = dev.CreateCQ(64)
		check(t, err)
		s.MR, err = pd.RegisterMemory(bytes.Repeat([]byte{byte(i + 1)}, 512<<10), verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
		check(t, err)
		s.QP, err = pd.CreateQP(verbs.QPConfig{SendCQ: s.CQ, RecvCQ: s.CQ})
		check(t, err)
		sides = append(sides, s)
	}
	return sides
}

// TestSealedBesideClear has queue pairs of one device work at once over real
// sockets, on several shards: some are sealed, with all algorithms, some are in
// clear, and some are sealed while they work. Those that are sealed have new
// keys each 300 packets, and when the program wants them. Each gets its own
// bytes, and no packet is dropped for its seal.
func TestSealedBesideClear(t *testing.T) {
	t.Parallel()
	const pairs, rounds, size = 12, 20, 200_003
	from, to := shardedSide(t, pairs), shardedSide(t, pairs)
	versions := []verbs.SealVersion{verbs.SealGCM128, verbs.SealGCM256, verbs.SealGMAC128, verbs.SealGMAC256}
	for i := range pairs {
		verbstest.Connect(t, from[i].QP, to[i].QP)
	}
	sealed := func(i int) { seal(t, from[i].QP, to[i].QP, versions[i/3%4]) }
	var all sync.WaitGroup
	for i := range pairs {
		if i%3 == 0 {
			sealed(i)
		}
		all.Go(func() {
			for round := range rounds {
				if i%3 == 1 && round == rounds/2 {
					sealed(i)
				}
				sealing(t, to[i].QP).Rekey() // of one in clear, too
				if err := writeAndRead(t, &from[i], &to[i], byte(16*round+i), size); err != nil {
					t.Errorf("queue pair %d, round %d: %v", i, round, err)
					return
				}
			}
		})
	}
	all.Wait()
	for i := range pairs {
		want := verbs.SecuritySealed
		if i%3 == 2 {
			want = verbs.SecurityClear
		}
		if got := sealing(t, to[i].QP).State(); got != want {
			t.Errorf("queue pair %d takes packets of kind %v, want %v", i, got, want)
		}
	}
	for _, s := range []*verbstest.Side{&from[0], &to[0]} {
		c := s.Dev.SealCounters()
		if c.Sealed == 0 || c.Opened == 0 || c.Rekeys < pairs/3*rounds || c.NoKey+c.Unknown+c.Peer+c.Format+c.Forged != 0 {
			t.Errorf("sealed packets: %+v", c)
		}
	}
}

// writeAndRead writes bytes of one value to the peer, and reads them back to
// another place.
func writeAndRead(t *testing.T, from, to *verbstest.Side, value byte, size int) error {
	t.Helper()
	const back = 256 << 10
	want := bytes.Repeat([]byte{value}, size)
	copy(from.MR.Bytes(), want)
	clear(from.MR.Bytes()[back:])
	for id, wr := range []verbs.SendWR{
		{Opcode: verbs.OpWrite, SGList: sgl(from.MR, 0, size)},
		{Opcode: verbs.OpRead, SGList: sgl(from.MR, back, size)},
	} {
		wr.ID, wr.Signaled, wr.Remote = uint64(id), true, to.MR.RemoteAt(0)
		if err := from.QP.PostSend(wr); err != nil {
			return err
		}
		wc := from.Next(t)
		if err := wc.Err(); err != nil {
			return err
		}
	}
	if !bytes.Equal(from.MR.Bytes()[back:back+size], want) {
		return fmt.Errorf("other bytes came back")
	}
	return nil
}
