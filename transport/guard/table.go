package guard

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/rocev2/psp"
)

// Bounds of a Table.
const (
	MostPeers    = 1024
	MostReceives = 8 // secrets for what comes from one peer
)

// MaxNumber is the largest number of a secret. The least is 1.
const MaxNumber = 1<<15 - 1

// Secret is what keys of one direction are derived from, as those of a master
// key of PSP are (psp.MasterKeys).
type Secret struct {
	Number  uint16 // that the receiver has chosen; 0: there is none
	Slots   uint16 // of the receiver's port, a power of two, 256 at most
	Version psp.Version
	Master  [psp.MasterKeyLen]byte `json:"-"`
}

// Format keeps the secret out of what is printed.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "secret %d", s.Number) }

// Peer is what there is for a peer.
type Peer struct {
	Addr     netip.Addr // plain, without zone
	Send     Secret
	Receives []Secret // the newest first, at most MostReceives
}

// Format keeps the secrets out of what is printed.
func (p Peer) Format(f fmt.State, _ rune) { io.WriteString(f, p.Addr.String()) }

// Sizes of a table, in words of 8 bytes: a version, which is odd while the
// table is written, and how many peers there are; then the peers, each an
// address, and secrets with a word before them.
const (
	headWords   = 8
	secretWords = 1 + psp.MasterKeyLen/8
	peerWords   = 2 + (1+MostReceives)*secretWords
	tableWords  = headWords + MostPeers*peerWords
)

// TableBytes is how many bytes of memory a Table has.
const TableBytes = tableWords * 8

// Table has the secrets of all peers. One process writes it, others may read it
// meanwhile.
type Table struct {
	words []atomic.Uint64

	mu    sync.Mutex // of writers
	index map[netip.Addr]int
	peers []netip.Addr
}

// NewTable returns an empty table in memory of this process.
func NewTable() *Table { return tableOf(make([]atomic.Uint64, tableWords)) }

func tableOf(words []atomic.Uint64) *Table {
	return &Table{words: words, index: map[netip.Addr]int{}}
}

// Version returns what is another one after each change.
func (t *Table) Version() uint64 { return t.words[0].Load() }

// Set enters what there is for a peer, in place of what there was. It reports
// false if the table is full.
func (t *Table) Set(p *Peer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, ok := t.index[p.Addr]
	if !ok {
		if i = len(t.peers); i == MostPeers {
			return false
		}
		t.index[p.Addr] = i
		t.peers = append(t.peers, p.Addr)
	}
	t.words[0].Add(1)
	at := t.entry(i)
	a := p.Addr.As16()
	at[0].Store(binary.BigEndian.Uint64(a[:]))
	at[1].Store(binary.BigEndian.Uint64(a[8:]))
	p.Send.put(at[2:])
	for k := range MostReceives {
		var s Secret
		if k < len(p.Receives) {
			s = p.Receives[k]
		}
		s.put(at[2+(1+k)*secretWords:])
	}
	t.words[1].Store(uint64(len(t.peers)))
	t.words[0].Add(1)
	return true
}

// Remove takes a peer out.
func (t *Table) Remove(addr netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, ok := t.index[addr]
	if !ok {
		return
	}
	last := len(t.peers) - 1
	t.words[0].Add(1)
	to, from := t.entry(i), t.entry(last)
	for k := range from {
		to[k].Store(from[k].Load())
		from[k].Store(0)
	}
	t.words[1].Store(uint64(last))
	t.words[0].Add(1)
	t.peers[i] = t.peers[last]
	t.index[t.peers[i]] = i
	t.peers = t.peers[:last]
	delete(t.index, addr)
}

// Clear takes all peers out, and overwrites their secrets.
func (t *Table) Clear() {
	t.mu.Lock()
	all := append([]netip.Addr(nil), t.peers...)
	t.mu.Unlock()
	for _, a := range all {
		t.Remove(a)
	}
}

func (t *Table) entry(i int) []atomic.Uint64 {
	return t.words[headWords+i*peerWords:][:peerWords]
}

// readTries is how often a reader begins again, as the table is written.
const readTries = 1000

// read returns all peers, and the version of the table. It reports false if the
// table does not come to rest: its writer may have been stopped within a write.
func (t *Table) read() (peers []Peer, version uint64, ok bool) {
	for range readTries {
		version = t.Version()
		if version%2 != 0 {
			continue
		}
		n := min(t.words[1].Load(), MostPeers)
		peers = make([]Peer, n)
		for i := range peers {
			peers[i] = readPeer(t.entry(i))
		}
		if t.Version() == version {
			return peers, version, true
		}
	}
	return nil, 0, false
}

// Hosts returns the peers that can be sent to, in the order of their addresses.
func (t *Table) Hosts() (hosts []netip.Addr) {
	list, _, _ := t.read()
	for i := range list {
		if list[i].Send.Number != 0 {
			hosts = append(hosts, list[i].Addr)
		}
	}
	slices.SortFunc(hosts, netip.Addr.Compare)
	return hosts
}

func readPeer(at []atomic.Uint64) (p Peer) {
	var a [16]byte
	binary.BigEndian.PutUint64(a[:], at[0].Load())
	binary.BigEndian.PutUint64(a[8:], at[1].Load())
	p.Addr = netip.AddrFrom16(a).Unmap()
	p.Send = readSecret(at[2:])
	for k := range MostReceives {
		if s := readSecret(at[2+(1+k)*secretWords:]); s.Number != 0 {
			p.Receives = append(p.Receives, s)
		}
	}
	return p
}

// put writes a secret: a word with the rest, then the master key.
func (s *Secret) put(at []atomic.Uint64) {
	at[0].Store(uint64(s.Version)<<32 | uint64(s.Slots)<<16 | uint64(s.Number))
	for k := range psp.MasterKeyLen / 8 {
		at[1+k].Store(binary.BigEndian.Uint64(s.Master[8*k:]))
	}
}

func readSecret(at []atomic.Uint64) (s Secret) {
	w := at[0].Load()
	s.Number, s.Slots, s.Version = uint16(w)&MaxNumber, uint16(w>>16), psp.Version(w>>32)
	for k := range psp.MasterKeyLen / 8 {
		binary.BigEndian.PutUint64(s.Master[8*k:], at[1+k].Load())
	}
	return s
}

// keys derives master keys of leases from a secret.
func (s *Secret) keys() *psp.MasterKeys { return psp.OneMaster(&s.Master) }
