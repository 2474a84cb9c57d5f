//go:build !portable

package owner

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/transport/lease"
)

// listed is a message of the answer to lease.Message.List: a lease, or the end
// of the list.
type listed struct {
	Lease *Lease `json:"lease,omitempty"`
	Ended bool   `json:"ended,omitempty"` // the lease has
	Over  bool   `json:"over,omitempty"`  // the list is complete
}

// mostListed is the longest of them, and mostListedPeers how many peers of a
// connection manager are in it.
const (
	mostListed      = 32 << 10
	mostListedPeers = 64
)

// list answers the question for leases: those of the user who asks, all for the
// owner's own user.
func (t *tenant) list() {
	o := t.owner
	if t.uid != uint32(os.Geteuid()) && (o.cfg.Allow == nil || !o.cfg.Allow(t.uid)) {
		_ = t.write(&lease.Message{Refused: refusal(lease.NotAllowed, "user %d may not lease the port of %v", t.uid, o.Addr())}) // it sees the end, else
		return
	}
	var past []Lease
	if o.cfg.Past != nil {
		past = o.cfg.Past()
	}
	for _, l := range past {
		if !t.tellOf(&l, true) {
			return
		}
	}
	for _, l := range o.Leases() {
		if !t.tellOf(&l, false) {
			return
		}
	}
	_ = t.say(listed{Over: true})
}

// tellOf writes a lease, unless it is another user's. It returns false if the
// process takes no more.
func (t *tenant) tellOf(l *Lease, ended bool) bool {
	if l.UID != t.uid && t.uid != uint32(os.Geteuid()) {
		return true
	}
	c := *l
	c.Services, c.Peers = nil, c.Peers[:min(len(c.Peers), mostListedPeers)]
	return t.say(listed{Lease: &c, Ended: ended}) == nil
}

func (t *tenant) say(m listed) error {
	b, err := json.Marshal(m)
	if err == nil {
		err = t.conn.SetWriteDeadline(time.Now().Add(answerTime))
	}
	if err == nil {
		_, err = t.conn.Write(b)
	}
	return err
}

// errNotListed says that an owner does not tell of its leases.
var errNotListed = errors.New("the owner of the port does not tell of its leases: it is of another release, perhaps")

// List asks the owner of a port, which is another process, for the leases of
// this user: those that there are, and the last ones that have ended. This
// process must have one of them: so it is known to be the right owner.
func List(addr netip.Addr, port uint16) (leases, ended []Lease, err error) {
	err = lease.ErrNoOwner
	for _, conn := range lease.DialOwners(addr, port) {
		var l, e []Lease
		if err != nil {
			if l, e, err = ask(conn); err == nil && !slices.ContainsFunc(l, isOwn) {
				err = lease.ErrNoOwner
			}
			leases, ended = l, e
		}
		conn.Close()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("owner: %v: %w", addr, err)
	}
	return leases, ended, nil
}

func isOwn(l Lease) bool { return l.PID == os.Getpid() }

// ListAt is List of the owner whose socket has the path (lease.Sockets). This
// process need not have a lease.
func ListAt(path string) (leases, ended []Lease, err error) {
	conn, err := lease.Dial(path)
	if err == nil {
		defer conn.Close()
		leases, ended, err = ask(conn)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("owner: %s: %w", path, err)
	}
	return leases, ended, nil
}

func ask(conn *net.UnixConn) (leases, ended []Lease, err error) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, nil, err
	}
	if _, err := conn.Write((&lease.Message{List: true}).Append(nil)); err != nil {
		return nil, nil, err
	}
	for b := make([]byte, mostListed); ; {
		n, err := conn.Read(b)
		if err != nil {
			return nil, nil, err
		}
		var m listed
		switch err := json.Unmarshal(b[:n], &m); {
		case err != nil:
			return nil, nil, fmt.Errorf("%w: %w", errNotListed, err)
		case m.Over:
			return leases, ended, nil
		case m.Lease == nil:
			return nil, nil, errNotListed
		case m.Ended:
			ended = append(ended, *m.Lease)
		default:
			leases = append(leases, *m.Lease)
		}
	}
}
