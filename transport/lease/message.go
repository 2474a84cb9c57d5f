package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/guard"
)

// Version is that of the protocol on the Unix socket and of envelopes. Both
// sides must have the same.
const Version = 1

// MaxMessage is the longest message in bytes: Tell with all that it may have.
const MaxMessage = 6144

// Message is what passes on the Unix socket: one of its fields is set. The
// process that asks for a lease begins with Hello. The answer is Grant, which
// has the descriptors with it, or Refused. After that requests are answered in
// order, by Done or Refused.
type Message struct {
	Hello   *Hello   `json:"hello,omitempty"`
	List    bool     `json:"list,omitempty"` // in the place of Hello: for the leases of the user, see owner.List
	Reserve *Service `json:"reserve,omitempty"`
	Release *Service `json:"release,omitempty"` // has no answer
	Tell    *Counts  `json:"tell,omitempty"`    // answers Ask, and is the last word; has no answer
	Want    *Want    `json:"want,omitempty"`    // has no answer

	Grant   *Grant   `json:"grant,omitempty"`
	Refused *Refusal `json:"refused,omitempty"`
	Done    bool     `json:"done,omitempty"`
	Ask     bool     `json:"ask,omitempty"` // for Tell
}

// Hello asks for a lease.
type Hello struct {
	Version    int    `json:"version"`
	Shards     int    `json:"shards"` // sockets, a power of two
	RecvBuffer int    `json:"recv_buffer,omitempty"`
	SendBuffer int    `json:"send_buffer,omitempty"`
	Command    string `json:"command,omitempty"`
	Run        string `json:"run,omitempty"` // RunEnv of the process
}

// Grant is a lease.
type Grant struct {
	Version   int            `json:"version"`
	Local     netip.AddrPort `json:"local"` // with zone
	Scope     uint32         `json:"scope"` // see udp.Slots.Scope
	Slot      int            `json:"slot"`  // of the first descriptor
	Slots     int            `json:"slots"` // of the owner
	Token     Token          `json:"token"`
	MaxQPs    int            `json:"max_qps,omitempty"`
	LinkMTU   int            `json:"link_mtu"`  // of the interface that has the address
	Namespace uint64         `json:"namespace"` // of the sockets, see udp.Link.Namespace

	// Secured says that all packets are sealed (package transport/guard):
	// one more descriptor follows, of the table of keys.
	Secured bool   `json:"secured,omitempty"`
	Serial  uint32 `json:"serial,omitempty"` // no other lease of the owner has it
}

// Want asks for keys of a peer, where the port is secured.
type Want struct {
	Peer netip.Addr   `json:"peer"`
	Why  guard.Reason `json:"why"`
}

// Service is one service ID, or several that differ in the bits outside of
// Mask.
type Service struct {
	ID   uint64 `json:"id"`
	Mask uint64 `json:"mask"`
}

// Counts are what a leaseholder tells of itself, since its beginning but for
// QPs.
type Counts struct {
	QPs       int    `json:"qps"`             // open queue pairs
	MadeQPs   uint64 `json:"made_qps"`        // queue pairs made
	TxPackets uint64 `json:"tx_packets"`      // with those through shared memory
	RxPackets uint64 `json:"rx_packets"`      //
	TxBytes   uint64 `json:"tx_bytes"`        //
	RxBytes   uint64 `json:"rx_bytes"`        //
	TxShm     uint64 `json:"tx_shm_bytes"`    // of TxBytes, through shared memory
	RxShm     uint64 `json:"rx_shm_bytes"`    // of RxBytes
	Last      bool   `json:"last,omitempty"`  // the lease ends
	Peers     []Peer `json:"peers,omitempty"` // that queue pairs were connected to, the first ones

	Guard *guard.Counters `json:"guard,omitempty"` // nil: the port is not secured

	transport.Work
}

// possible reports whether a device can have such counters. A process may say
// what it likes of itself. But its numbers are added to those of others, and
// zones are written to terminals.
func (c *Counts) possible() bool {
	if c.QPs < 0 || c.QPs > 1<<24 {
		return false
	}
	w := &c.Work
	if len(w.Types) > transport.MostUsedTypes || len(w.Connections) > transport.MostUsedConnections || len(w.Requests) > transport.MostUsedOperations {
		return false
	}
	for _, t := range w.Types {
		if !isName(t.Type) {
			return false
		}
	}
	for _, o := range w.Requests {
		if !isName(o.Operation) {
			return false
		}
	}
	for _, k := range w.Connections {
		if !isName(k.Type) || k.Peer.Zone() != "" {
			return false
		}
	}
	for i := range c.Peers {
		if strings.ContainsFunc(c.Peers[i].Addr.Zone(), func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }) {
			return false
		}
	}
	return true
}

// isName reports whether s may be the name of a type or of an operation.
func isName(s string) bool {
	return len(s) <= 24 && !strings.ContainsFunc(s, func(r rune) bool { return (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' })
}

// Bound has no counter be more than most.
func (c *Counts) Bound(most uint64) {
	list := []*uint64{&c.MadeQPs, &c.TxPackets, &c.RxPackets, &c.TxBytes, &c.RxBytes, &c.TxShm, &c.RxShm, &c.LoopPackets, &c.LoopBytes}
	for i := range c.Types {
		list = append(list, &c.Types[i].Made)
	}
	for i := range c.Requests {
		list = append(list, &c.Requests[i].Requests, &c.Requests[i].Bytes)
	}
	for _, n := range list {
		*n = min(*n, most)
	}
	if c.Guard != nil {
		c.Guard.Bound(most)
	}
}

// Idle reports whether the device has ended, and never had a queue pair, nor
// sent anything: then nothing is on its way to it.
func (c *Counts) Idle() bool { return c.Last && c.MadeQPs == 0 && c.TxPackets == 0 }

// Peer is a peer of queue pairs.
type Peer = transport.UsedPeer

// countsOf says what a device has been used for, whose sockets have counted
// udp. The device has counted the same packets, and those through shared
// memory.
func countsOf(udp *transport.LinkStats, use func() transport.Use) *Counts {
	c := &Counts{TxPackets: udp.TxPackets, RxPackets: udp.RxPackets, TxBytes: udp.TxBytes, RxBytes: udp.RxBytes}
	if use == nil {
		return c
	}
	u := use() // after udp: it has counted no less
	c.QPs, c.MadeQPs, c.Peers, c.Work = u.QPs, u.Made, u.Peers, u.Work
	if u.Link.TxShm > 0 || u.Link.RxShm > 0 {
		c.TxPackets, c.RxPackets = max(c.TxPackets, u.Link.TxPackets), max(c.RxPackets, u.Link.RxPackets)
		c.TxShm, c.RxShm = u.Link.TxBytes-min(u.Link.TxBytes, c.TxBytes), u.Link.RxBytes-min(u.Link.RxBytes, c.RxBytes)
		c.TxBytes, c.RxBytes = c.TxBytes+c.TxShm, c.RxBytes+c.RxShm
	}
	return c
}

// Reason is why a request was refused.
type Reason string

// Reasons.
const (
	NotAllowed Reason = "not allowed" // the user may not lease
	NoSlot     Reason = "no slot"     // all slots are leased
	Resting    Reason = "resting"     // no slot, but some rest: Open tries again
	OverQuota  Reason = "over quota"
	InUse      Reason = "in use" // another lease has the service
	BadRequest Reason = "bad request"
)

// Refusal says why a request was refused. It is the error of Open and of
// Link.ReserveService.
type Refusal struct {
	Reason Reason `json:"reason"`
	Text   string `json:"text"` // what was wrong, and what helps
}

func (r *Refusal) Error() string { return "the owner of the port refuses: " + r.Text }

var errMessage = errors.New("not a message of this protocol")

// Parse reads a message. It takes nothing that is longer than MaxMessage, that
// has none or several of the fields, or that tells what cannot be.
func Parse(b []byte) (*Message, error) {
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("%w: %d bytes, the most is %d", errMessage, len(b), MaxMessage)
	}
	m := new(Message)
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, err)
	}
	n := 0
	for _, set := range []bool{m.Hello != nil, m.Reserve != nil, m.Release != nil, m.Tell != nil,
		m.Grant != nil, m.Refused != nil, m.Done, m.Ask, m.List, m.Want != nil} {
		if set {
			n++
		}
	}
	if n != 1 {
		return nil, fmt.Errorf("%w: it has %d parts", errMessage, n)
	}
	if w := m.Want; w != nil && (!w.Peer.IsValid() || w.Peer.Zone() != "" || w.Why > guard.Renew) {
		return nil, fmt.Errorf("%w: keys of %v for reason %d cannot be wanted", errMessage, w.Peer, w.Why)
	}
	if m.Tell != nil && !m.Tell.possible() {
		return nil, fmt.Errorf("%w: no device has such counters", errMessage)
	}
	return m, nil
}

// Append writes a message.
func (m *Message) Append(b []byte) []byte {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // plain values always can be written
	}
	return append(b, text...)
}
