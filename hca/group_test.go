package hca

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

var testGroup, testGroup2 = netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("239.1.2.4")

const testQKey = 0x11111111

// memberships notes what the links of a device have joined.
type memberships struct {
	transport.GroupJoiner
	mu     sync.Mutex
	joined []netip.Addr
	joins  int
	fail   error // of the next calls
}

// joining is a link with memberships.
type joining struct {
	transport.Link
	m *memberships
}

func (l joining) JoinGroup(g netip.Addr) error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.m.fail != nil {
		return l.m.fail
	}
	err := l.m.GroupJoiner.JoinGroup(g)
	if err == nil {
		l.m.joined = append(l.m.joined, g)
		l.m.joins++
	}
	return err
}

func (l joining) LeaveGroup(g netip.Addr) error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	err := l.m.GroupJoiner.LeaveGroup(g)
	if err == nil {
		l.m.joined = slices.DeleteFunc(l.m.joined, func(have netip.Addr) bool { return have == g })
	}
	return err
}

func (m *memberships) now() []netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.joined)
}

// newGroupHosts makes two hosts with the given number of shards, at whose first
// link everything arrives.
func newGroupHosts(t *testing.T, cfg Config, shards int) (a, b *host, of [2]*memberships) {
	t.Helper()
	la, lb := fabric.Pair(testAddrA, testAddrB)
	var hosts [2]*host
	for i, l := range []transport.Link{la, lb} {
		m := &memberships{GroupJoiner: l.(*fabric.Port)}
		var send sync.Mutex
		links := []transport.Link{joining{lockedLink{l, &send}, m}}
		for len(links) < shards {
			links = append(links, joining{mute{l, &send, make(chan struct{})}, m})
		}
		hosts[i], of[i] = &host{t: t, dev: New(cfg, links...)}, m
		hosts[i].equip()
	}
	return hosts[0], hosts[1], of
}

var lastReceive atomic.Uint32

// ud makes a UD queue pair in RTS with the given number of receives, each in a
// place of its own.
func (h *host) ud(qkey uint32, receives int) *QP {
	h.t.Helper()
	q, err := h.owner.CreateQP(qp.Config{Type: ib.UD, PD: h.pd.Core(), SendCQ: h.cq, RecvCQ: h.cq, MaxSendWR: 16, MaxRecvWR: 64, MaxInline: 8})
	h.must(err)
	h.must(q.Modify(&ib.Attr{State: ib.StateInit, Port: 1, QKey: qkey}, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrQKey))
	for range receives {
		place := h.mr.Region().SGE(0, 256)
		place.Addr += uint64(lastReceive.Add(1) % 4096 * 256) // nothing orders what different shards do
		_, err := q.PostRecv([]ib.RecvWR{{SGList: []ib.SGE{place}}})
		h.must(err)
	}
	h.must(q.Modify(&ib.Attr{State: ib.StateRTR}, ib.AttrState))
	h.must(q.Modify(&ib.Attr{State: ib.StateRTS}, ib.AttrState|ib.AttrSQPSN))
	return q
}

// sendTo sends n datagrams to a group.
func (h *host) sendTo(q *QP, group netip.Addr, n int) {
	h.t.Helper()
	ah := new(AH)
	h.must(h.pd.MakeAH(ah, ib.AddressVector{DGID: group}))
	for range n {
		_, err := q.PostSend([]ib.SendWR{{Opcode: ib.OpSend, AH: &ah.handle, RemoteQPN: rocev2.MulticastQPN, RemoteQKey: testQKey, Inline: []byte("all")}})
		h.must(err)
	}
	h.must(ah.Close())
}

// received returns how many receives of each queue pair have completed.
func (h *host) received() map[rocev2.QPN]int {
	h.t.Helper()
	got := map[rocev2.QPN]int{}
	var wc [64]ib.WC
	for n := h.cq.Poll(wc[:]); n > 0; n = h.cq.Poll(wc[:]) {
		for _, c := range wc[:n] {
			if c.Opcode == ib.WCRecv && c.Status == ib.StatusSuccess {
				got[c.QPN]++
			}
		}
	}
	return got
}

// TestGroups: a datagram for a group comes once to every queue pair that is
// attached, on every shard, with and without Loopback, the one that has sent it
// included. The link is a member from the first attachment to the last.
func TestGroups(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2, 8} {
		for _, loop := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				a, b, of := newGroupHosts(t, Config{Loopback: loop}, shards)
				members := map[*host][]*QP{}
				for range 12 {
					for _, h := range []*host{a, b} {
						q := h.ud(testQKey, 16)
						h.must(q.Attach(testGroup))
						h.must(q.Attach(testGroup)) // which changes nothing
						members[h] = append(members[h], q)
					}
				}
				other, outside := b.ud(testQKey+1, 4), b.ud(testQKey, 4)
				b.must(other.Attach(testGroup))
				b.must(outside.Attach(testGroup2))
				want := func(why string, n int) {
					t.Helper()
					a.sendTo(members[a][0], testGroup, n)
					synctest.Wait()
					time.Sleep(time.Millisecond)
					for h, qps := range members {
						got := h.received()
						if len(got) != len(qps) {
							t.Errorf("%s: %d queue pairs have received, want %d", why, len(got), len(qps))
						}
						for _, q := range qps {
							if got[q.QPN()] != n {
								t.Errorf("%s: %v has %d datagrams, want %d", why, q.QPN(), got[q.QPN()], n)
							}
						}
					}
				}
				want("all", 3)
				if n := b.dev.Stats().Drops["qkey"]; n != 3 {
					t.Errorf("%d dropped for the Q_Key", n)
				}
				if m := of[0].now(); of[0].joins != 1 || !slices.Equal(m, []netip.Addr{testGroup}) {
					t.Errorf("joined %d times, member of %v", of[0].joins, m)
				}
				if groups, n := b.dev.Groups(); !slices.Equal(groups, []netip.Addr{testGroup, testGroup2}) || !slices.Equal(n, []int{13, 1}) {
					t.Errorf("groups %v of %v", groups, n)
				}
				b.must(members[b][0].Detach(testGroup))
				if err := members[b][0].Detach(testGroup); !errors.Is(err, ErrNotAttached) {
					t.Errorf("detach again: %v", err)
				}
				b.must(members[b][1].Close())
				members[b] = members[b][2:]
				want("two less", 2)
				for _, q := range members[b] {
					b.must(q.Close())
				}
				members[b] = nil
				b.must(other.Detach(testGroup))
				if m := of[1].now(); !slices.Equal(m, []netip.Addr{testGroup2}) {
					t.Errorf("member of %v after the last has gone", m)
				}
				want("none there", 1)
				b.must(b.owner.Close())
				if m := of[1].now(); len(m) != 0 {
					t.Errorf("member of %v after the context", m)
				}
				a.must(a.dev.Close())
				if m := of[0].now(); len(m) != 0 {
					t.Errorf("member of %v after the device", m)
				}
			})
		}
	}
}

// TestGroupErrors: what cannot be attached is refused by name, and leaves no
// trace.
func TestGroupErrors(t *testing.T) {
	t.Parallel()
	a, _, of := newGroupHosts(t, Config{}, 1)
	q := a.ud(testQKey, 1)
	for _, bad := range []netip.Addr{testAddrB, {}, netip.MustParseAddr("ff0e::1"), netip.MustParseAddr("255.255.255.255")} {
		if err := q.Attach(bad); !errors.Is(err, transport.ErrNotGroup) {
			t.Errorf("attach %v: %v", bad, err)
		}
		if err := q.Detach(bad); !errors.Is(err, transport.ErrNotGroup) {
			t.Errorf("detach %v: %v", bad, err)
		}
	}
	if err := a.newQP().Attach(testGroup); !errors.Is(err, ErrNotUD) {
		t.Errorf("attach RC: %v", err)
	}
	if err := q.Detach(testGroup); !errors.Is(err, ErrNotAttached) {
		t.Errorf("detach: %v", err)
	}
	refused := errors.New("refused")
	of[0].fail = refused
	if err := q.Attach(testGroup); !errors.Is(err, refused) {
		t.Errorf("the link refuses: %v", err)
	}
	of[0].fail = transport.ErrManyGroups
	if err := q.Attach(testGroup); !errors.Is(err, ErrNoResources) {
		t.Errorf("the link has too many: %v", err)
	}
	of[0].fail = nil
	closed := a.ud(testQKey, 0)
	a.must(closed.Close())
	if err := closed.Attach(testGroup); !errors.Is(err, ErrClosed) {
		t.Errorf("attach a closed queue pair: %v", err)
	}
	if g, _ := a.dev.Groups(); len(g) != 0 || len(of[0].now()) != 0 || a.dev.stock.has(kindAttach) != 0 {
		t.Errorf("left are %v, %v, %d", g, of[0].now(), a.dev.stock.has(kindAttach))
	}
	// A link that receives no multicast.
	la, lb := fabric.Pair(testAddrA, testAddrB)
	defer lb.Close()
	var send sync.Mutex
	c := &host{t: t, dev: New(Config{}, lockedLink{la, &send})}
	c.equip()
	if err := c.ud(testQKey, 0).Attach(testGroup); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a link without groups: %v", err)
	}
}

// TestGroupStorm: queue pairs are attached, detached and closed beside each
// other while datagrams come, and the device too. Nothing is left.
func TestGroupStorm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			a, b, of := newGroupHosts(t, Config{Loopback: seed%2 == 0}, 1<<(seed%3))
			groups := []netip.Addr{testGroup, testGroup2}
			qps := make([]*QP, 10)
			for i := range qps {
				qps[i] = b.ud(testQKey, 64)
			}
			from := a.ud(testQKey, 0)
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := range 60 {
					a.sendTo(from, groups[i%2], 2)
					a.received()
					time.Sleep(10 * time.Microsecond)
				}
			})
			for g := range uint64(6) {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(seed, g))
					for range 80 {
						q, group := qps[rng.IntN(len(qps))], groups[rng.IntN(2)]
						var err error
						switch n := rng.IntN(20); {
						case n < 9:
							err = q.Attach(group)
						case n < 17:
							err = q.Detach(group)
						case n == 17 && g < 2:
							err = q.Close()
						case n == 18:
							b.dev.Groups()
							b.dev.Stats()
						default:
							time.Sleep(time.Duration(rng.IntN(30)) * time.Microsecond)
						}
						if err != nil && !errors.Is(err, ErrNotAttached) && !errors.Is(err, ErrClosed) {
							t.Errorf("seed %d: %v", seed, err)
						}
					}
				})
			}
			if seed%4 == 3 {
				time.Sleep(200 * time.Microsecond)
				b.must(b.dev.Close())
			}
			wg.Wait()
			for _, q := range qps {
				b.must(q.Close())
			}
			if g, _ := b.dev.Groups(); len(g) != 0 || len(of[1].now()) != 0 || b.dev.stock.has(kindAttach) != 0 {
				t.Errorf("seed %d: left are %v, %v, %d", seed, g, of[1].now(), b.dev.stock.has(kindAttach))
			}
			if r := b.dev.groupRoutes.Load(); r != nil && len(*r) != 0 {
				t.Errorf("seed %d: routes %v", seed, *r)
			}
		})
	}
}
