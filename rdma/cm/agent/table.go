package agent

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// table has all connections, by everything that a message can say of one.
type table struct {
	conns map[mad.CommID]*conn // by the local ID
	byID  map[key]*conn        // passive, by the peer's communication ID
	byQPN map[key]*conn        // by the peer's QPN
	sidr  map[key]*conn        // SIDR requests of peers, by request ID
	peers map[addresses]*peer
	stats *Stats
	cfg   *Config

	free        []*conn
	freeNumbers []uint32 // of peers
	numbers     uint32
	lastID      uint32
	idKeys      [4]uint32
	idHalf      int    // bits
	idLow       uint32 // of all IDs, with as many bits as the halves leave
}

func makeTable(cfg *Config, stats *Stats) table {
	random := cfg.Random
	t := table{
		conns:  map[mad.CommID]*conn{},
		byID:   map[key]*conn{},
		byQPN:  map[key]*conn{},
		sidr:   map[key]*conn{},
		peers:  map[addresses]*peer{},
		stats:  stats,
		cfg:    cfg,
		lastID: random(),
		idHalf: 16,
	}
	if cfg.Shared {
		t.idHalf, t.idLow = 12, uint32(cfg.Slot)
	}
	for i := range t.idKeys {
		t.idKeys[i] = random()
	}
	return t
}

// peerOf returns the peer of a path, and makes one if there is none.
func (t *table) peerOf(p *Path) *peer {
	k := addressesOf(p)
	if old := t.peers[k]; old != nil {
		return old
	}
	var n uint32
	if free := len(t.freeNumbers); free > 0 {
		n = t.freeNumbers[free-1]
		t.freeNumbers = t.freeNumbers[:free-1]
	} else {
		t.numbers++
		n = t.numbers
	}
	made := &peer{addresses: k, number: n}
	t.peers[k] = made
	return made
}

// add makes a connection with a new local ID.
func (t *table) add(p *Path, state State) *conn { return t.enter(p, state, t.newID()) }

// enter makes a connection with a local ID.
func (t *table) enter(p *Path, state State, id mad.CommID) *conn {
	var c *conn
	if n := len(t.free); n > 0 {
		c = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		c = new(conn)
	}
	*c = conn{local: id, peer: t.peerOf(p), state: state, class: p.TrafficClass, flowLabel: p.FlowLabel & 0xfffff}
	c.peer.conns++
	if p.Control != 0 {
		c.peer.only = c
	}
	t.conns[c.local] = c
	return c
}

func (t *table) remove(c *conn) {
	t.forget(c)
	t.unindex(c)
	t.setState(c, StateIdle)
	delete(t.conns, c.local)
	p := c.peer
	if p.only == c {
		p.only = nil
	}
	if p.conns--; p.conns == 0 {
		delete(t.peers, p.addresses)
		t.freeNumbers = append(t.freeNumbers, p.number)
		t.idle(p)
	}
	*c = conn{}
	if len(t.free) < 1024 {
		t.free = append(t.free, c)
	}
}

func (t *table) setState(c *conn, s State) {
	if c.state == StateTimewait {
		t.stats.Timewait--
	}
	if s == StateTimewait {
		t.stats.Timewait++
	}
	c.state = s
}

// index makes c known by the peer's communication ID, so that duplicates of its
// REQ, or SIDR_REQ, are seen.
func (t *table) index(c *conn) {
	c.indexed = true
	t.known(c)[key{c.guid, c.peer.number, uint32(c.remote)}] = c
}

func (t *table) unindex(c *conn) {
	if c.indexed {
		c.indexed = false
		delete(t.known(c), key{c.guid, c.peer.number, uint32(c.remote)})
	}
}

func (t *table) known(c *conn) map[key]*conn {
	if c.state == StateSIDRReceived {
		return t.sidr
	}
	return t.byID
}

// learn makes c known by the peer's queue pair, so that another connection of
// it shows that c is stale.
func (t *table) learn(c *conn) {
	c.learned = true
	t.byQPN[key{c.guid, c.peer.number, uint32(c.remoteQPN)}] = c
}

// forget is the opposite: the queue pair may serve another connection.
func (t *table) forget(c *conn) {
	if c.learned {
		c.learned = false
		delete(t.byQPN, key{c.guid, c.peer.number, uint32(c.remoteQPN)})
	}
}

// newID returns a local ID: not 0, not in use, not used lately, and not to be
// guessed. It is a counter under a secret permutation (a Feistel network), and
// after it the slot, if there is one.
func (t *table) newID() mad.CommID {
	mask := uint32(1)<<t.idHalf - 1
	for {
		t.lastID++
		left, right := t.lastID>>t.idHalf&mask, t.lastID&mask
		for _, k := range t.idKeys {
			h := (uint64(right) + uint64(k)) * 0x9e3779b97f4a7c15
			h ^= h >> 29
			h *= 0xbf58476d1ce4e5b9
			left, right = right, left^uint32(h>>40)&mask
		}
		id := mad.CommID((left<<t.idHalf|right)<<(32-2*t.idHalf) | t.idLow)
		if _, used := t.conns[id]; id != 0 && !used {
			return id
		}
	}
}

// own returns the connection of an ID that the program knows.
func (t *table) own(id ID) (*conn, error) {
	c := t.conns[mad.CommID(id)]
	if c == nil || c.released {
		return nil, ErrUnknownID
	}
	return c, nil
}

// from reports whether a message for c comes from its peer's address.
func (t *table) from(c *conn, path *Path) bool {
	if c.peer.addresses == addressesOf(path) {
		return true
	}
	t.stats.WrongAddress++
	return false
}

// pair returns the connection that a message with both IDs is for, and nil if
// there is none: local is the ID that this side has given.
func (t *table) pair(path *Path, local, remote mad.CommID) *conn {
	c := t.conns[local]
	if c == nil || c.remote != remote || c.state == StateSIDRSent || c.state == StateSIDRReceived {
		t.stats.Unexpected++
		return nil
	}
	if !t.from(c, path) {
		return nil
	}
	return c
}

// rejected returns the connection that a REJ is about, or nil.
func (t *table) rejected(path *Path, m *mad.REJ) *conn {
	if m.Reason == mad.ReasonTimeout && m.RemoteID == 0 && len(m.ARI) >= 8 {
		// The active side gives up, and does not know the ID here.
		if p := t.peers[addressesOf(path)]; p != nil {
			guid := mad.GUID(binary.BigEndian.Uint64(m.ARI))
			c := t.byID[key{guid, p.number, uint32(m.LocalID)}]
			if c != nil && (c.state == StateREQReceived || c.state == StateREPSent) {
				return c
			}
		}
		t.stats.Unexpected++
		return nil
	}
	if c := t.conns[m.RemoteID]; m.Message == mad.StageREQ && c != nil && c.state == StateREQSent {
		if t.from(c, path) {
			return c
		}
		return nil
	}
	return t.pair(path, m.RemoteID, m.LocalID)
}

// extendable returns the connection that an MRA is for, or nil.
func (t *table) extendable(path *Path, m *mad.MRA) *conn {
	if m.Message != mad.StageREQ {
		c := t.pair(path, m.RemoteID, m.LocalID)
		if c != nil && (m.Message != mad.StageREP || c.state != StateREPSent) {
			t.stats.Unexpected++
			return nil
		}
		return c
	}
	c := t.conns[m.RemoteID]
	if c == nil || c.state != StateREQSent {
		t.stats.Unexpected++
		return nil
	}
	if !t.from(c, path) {
		return nil
	}
	return c
}
