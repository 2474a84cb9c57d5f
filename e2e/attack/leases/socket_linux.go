//go:build !portable

package leases

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/transport/lease"
)

func (t *trial) dialOwner() *net.UnixConn {
	c, err := lease.Dial(t.socket)
	t.check(err)
	return c
}

func hello() []byte {
	return (&lease.Message{Hello: &lease.Hello{Version: lease.Version, Shards: 1, Command: "a\x1b[2Jb"}}).Append(nil)
}

// nonsense is what no process that wants a lease says.
func nonsense() [][]byte {
	list := [][]byte{{}, hello()[:20], make([]byte, 100_000)}
	for _, s := range []string{"x", "{}", "null", strings.Repeat("[", lease.MaxMessage), `{"done":true}`, `{"hello":{}}`, `{"ask":true,"done":true}`,
		`{"hello":{"version":1,"shards":3}}`, `{"hello":{"version":1,"shards":-1}}`, `{"hello":{"version":1,"shards":1048576}}`,
		`{"hello":{"version":99,"shards":1}}`, `{"hello":{"version":1,"shards":1,"recv_buffer":-1,"command":"` + strings.Repeat("c", 300) + `"}}`,
		`{"tell":{"qps":7}}`, `{"reserve":{"id":1,"mask":0}}`} {
		list = append(list, []byte(s))
	}
	return list
}

// garbage says nonsense, with files, to the owner.
func (t *trial) garbage() {
	null, err := os.Open("/dev/null")
	t.check(err)
	defer null.Close()
	fds := make([]int, 200) // the kernel passes 253 at most
	for i := range fds {
		fds[i] = int(null.Fd())
	}
	texts := nonsense()
	answers := 0
	for n := 0; t.more(n, t.Clients); n++ {
		c := t.dialOwner()
		for range 3 { // what comes after the first is not looked at
			_, _, err := c.WriteMsgUnix(texts[n%len(texts)], unix.UnixRights(fds...), nil)
			t.must(err == nil || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.ECONNRESET) ||
				errors.Is(err, unix.ETOOMANYREFS), "%v", err)
			t.result.Sent++
		}
		c.CloseWrite()
		b := make([]byte, lease.MaxMessage)
		if k, _ := c.Read(b); k > 0 {
			m, err := lease.Parse(b[:k])
			t.must(err == nil && m.Refused != nil, "%.40q was answered by %.80q", texts[n%len(texts)], b[:k])
			answers++
		}
		c.Close()
	}
	t.result.Answers = uint64(answers)
}

// silence keeps connections open that say nothing.
func (t *trial) silence() {
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for n := 0; t.more(n, t.Clients); n++ {
		if len(open) >= 200 { // files are this process's, too
			open[0].Close()
			open = open[1:]
		}
		open = append(open, t.dialOwner())
		t.result.Sent++
		if n%100 == 99 {
			err := t.newLease()
			t.must(err == nil, "a new lease beside silent connections: %v", err)
		}
	}
}

// takeAll takes leases until there are none, and drops them all at once.
func (t *trial) takeAll() {
	most := 0
	for n := 0; t.more(n, t.Clients); {
		var all []*tenant
		for {
			h, err := t.enter()
			n++
			t.result.Sent++
			if err != nil {
				var no *lease.Refusal
				t.must(errors.As(err, &no) && (no.Reason == lease.NoSlot || no.Reason == lease.Resting), "%v", err)
				break
			}
			all = append(all, h)
		}
		most = max(most, len(all))
		for _, h := range all {
			h.leave()
		}
	}
	t.figure("leases", float64(most), "at once")
	t.must(most > 100, "%d leases at once: the attack is an empty one", most)
}

// tenant is a lease without a device.
type tenant struct {
	conn  *net.UnixConn
	fd    int
	grant *lease.Grant
}

// enter takes a lease.
func (t *trial) enter() (*tenant, error) {
	c := t.dialOwner()
	if _, err := c.Write(hello()); err != nil {
		c.Close()
		return nil, err
	}
	b, control := make([]byte, lease.MaxMessage), make([]byte, unix.CmsgSpace(4))
	n, k, _, _, err := c.ReadMsgUnix(b, control)
	var m *lease.Message
	if err == nil {
		m, err = lease.Parse(b[:n])
	}
	if err == nil && m.Refused != nil {
		err = m.Refused
	}
	if err == nil && m.Grant == nil {
		err = fmt.Errorf("an answer that is no grant: %s", b[:n])
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:k])
	t.check(err)
	fds, err := unix.ParseUnixRights(&messages[0])
	t.check(err)
	return &tenant{c, fds[0], m.Grant}, nil
}

func (h *tenant) leave() {
	unix.Close(h.fd)
	h.conn.Close()
}

// say sends a message to the owner.
func (h *tenant) say(m *lease.Message) error {
	_, err := h.conn.Write(m.Append(nil))
	return err
}
