package stage

import (
	"bufio"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Conn is a control connection to a target. A line of text is a command with
// its parameters as name=value; the answer is a line that begins with "ok" or
// with "error". Numbers may be hexadecimal with 0x.
//
//	hello
//	    ok protocol=1 kind=linux-rxe release=6.1.0 device=rxe0
//	       addr=198.18.0.2 mtu=4096 caps=rc,uc,ud,atomic
//	qp type=rc addr=198.18.0.1 qpn=77 rqpsn=1 sqpsn=2 mtu=256 access=lrwa
//	   timeout=14 retry=7 rnrretry=7 rnr=1 rd=4 destrd=4 qkey=0
//	   receives=2 size=1024
//	    ok qpn=17 va=0x7f0000000000 len=65536 rkey=0x1234 readonly=0x2345
//	       foreign=0x3456
//	recv id=5 off=32768 len=100
//	post id=1 op=write off=0 len=100 va=0x1000 rkey=0x77 imm=0 add=0 swap=0
//	   fence=1
//	fill off=0 hex=00ff
//	mem off=0 len=16
//	    ok hex=00ff…
//	wc ms=500
//	    ok none, or ok id=5 status=0 len=100 imm=0x7
//	state
//	    ok state=RTS
//
// A connection has one queue pair. "qp" makes it, with memory of 64 KiB that is
// zero, and takes it to RTS towards the address and number that it gives:
// remote keys of the memory with all rights (rkey), of the same memory with
// the right to be read only (readonly), and of memory in another protection
// domain (foreign). It posts the receives, which have IDs from 100 on and lie
// one after the other from offset 32768 on. Statuses are those of
// ibv_wc_status. When the connection ends, all is destroyed.
//
// Capabilities: rc, uc and ud are transport services; atomic means atomics;
// atomic-write and flush the operations of Annex A19.
type Conn struct {
	conn    net.Conn
	in      *bufio.Reader
	timeout time.Duration
	err     error // why it is of no use any more
}

// The memory of a target, and the IDs of its receives.
const (
	MemoryLen = 1 << 16
	RecvBase  = 1 << 15
	FirstRecv = 100 // ID
	maxLine   = 1 << 14
)

// LinuxRXE is the kind of Linux's Soft-RoCE.
const LinuxRXE = "linux-rxe"

// Target is what a target says of itself.
type Target struct {
	Kind     string     `json:"kind"`                // "linux-rxe", "rocev2", or a vendor
	TakenFor string     `json:"taken_for,omitempty"` // the kind that the tester says it is; "" is that one
	Release  string     `json:"release"`             // of its software
	Device   string     `json:"device"`
	Addr     netip.Addr `json:"address"`
	MTU      int        `json:"mtu"`            // largest path MTU, in bytes
	Bare     bool       `json:"bare,omitempty"` // it is a Listener
	Services []string   `json:"capabilities"`
}

// Behaves returns the kind whose ways are expected of it.
func (t *Target) Behaves() string { return cmp.Or(t.TakenFor, t.Kind) }

// Name says what it is.
func (t *Target) Name() string {
	name := t.Kind + " " + t.Release
	if t.TakenFor != "" && t.TakenFor != t.Kind {
		name += ", taken for " + t.TakenFor
	}
	return name
}

// NewConn speaks over c. Every answer must come within the timeout.
func NewConn(c net.Conn, timeout time.Duration) *Conn {
	return &Conn{conn: c, in: bufio.NewReaderSize(c, maxLine), timeout: timeout}
}

// values are the parameters of an answer.
type values struct {
	text map[string]string
	err  error // the first number that is missing or too large
}

// number returns a parameter that is at most most. What the answer does not say
// is no 0: status 0 is success, and a key 0 is one that rules take for another.
func (v *values) number(name string, most uint64) uint64 {
	n, err := strconv.ParseUint(v.text[name], 0, 64)
	if (err != nil || n > most) && v.err == nil {
		v.err = fmt.Errorf("the target's answer has %s=%.20q, not a number up to %d", name, v.text[name], most)
	}
	return n
}

// printable replaces what a terminal would obey.
func printable(line []byte) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, string(line))
}

// Close ends the connection, and what the target has made for it.
func (c *Conn) Close() error { return c.conn.Close() }

// errAnswer is for a line that is no answer.
var errAnswer = errors.New("the target's answer is not a line that begins with ok or error")

// Err says why the target does not answer any more; nil if it does.
func (c *Conn) Err() error { return c.err }

// exchange sends a command and returns the line that answers it.
func (c *Conn) exchange(extra time.Duration, command string) ([]byte, error) {
	if err := c.conn.SetDeadline(time.Now().Add(c.timeout + extra)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(c.conn, command); err != nil {
		return nil, fmt.Errorf("the control connection: %w", err)
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		name, _, _ := strings.Cut(command, " ")
		return nil, fmt.Errorf("the control connection: no answer to %q: %w", name, err)
	}
	return line, nil
}

// do sends a command and returns what the answer says. The answer may take
// extra longer than others.
func (c *Conn) do(extra time.Duration, format string, args ...any) (*values, error) {
	line, err := c.exchange(extra, fmt.Sprintf(format, args...))
	if err != nil {
		c.err = err
		return nil, err
	}
	words := strings.Fields(printable(line))
	switch {
	case len(words) > 0 && words[0] == "error":
		return nil, fmt.Errorf("the target: %.200s", strings.Join(words[1:], " "))
	case len(words) == 0 || words[0] != "ok":
		return nil, fmt.Errorf("%w: %.60q", errAnswer, line)
	}
	v := &values{text: map[string]string{}}
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		v.text[name] = value
	}
	return v, nil
}

// Hello asks the target what it is.
func (c *Conn) Hello() (Target, error) {
	v, err := c.do(0, "hello")
	if err != nil {
		return Target{}, err
	}
	if v.text["protocol"] != "1" {
		return Target{}, fmt.Errorf("the target speaks protocol %.20q, not 1", v.text["protocol"])
	}
	word := func(name string) string { return fmt.Sprintf("%.60s", v.text[name]) }
	t := Target{Kind: word("kind"), Release: word("release"), Device: word("device"), MTU: int(v.number("mtu", 1<<16)), Services: strings.Split(v.text["caps"], ",")}
	t.Addr, err = netip.ParseAddr(v.text["addr"])
	t.Addr = t.Addr.Unmap()
	if _, e := rocev2.MTUOf(t.MTU); err == nil {
		err = cmp.Or(v.err, e)
	}
	if err != nil {
		return t, fmt.Errorf("the target says of itself: %w", err)
	}
	return t, nil
}

// Options are what a queue pair of the target is made with.
type Options struct {
	Kind     string     // rc, uc, ud; "" is rc
	Access   string     // rights of the connection: l, r, w, a, f; "" is all of them
	PSN      rocev2.PSN // that this side sends first; 0 is a default
	MTU      int        // bytes; 0 is 256
	Timeout  int        // code of the local ACK timeout; 0 is one that is late
	Retry    int        // 0 is 7, -1 is 0
	RNRRetry int        // 0 is 7, -1 is 0
	DestRd   int        // READs and atomics that this side may have outstanding; 0 is 4, -1 is 0
	Receives int        // that are posted
	RecvSize int        // bytes of each; 0 is 1024
	QKey     uint32     // of UD
}

const (
	MTU         = 256
	defaultPSN  = 0x10000
	lateTimeout = 20 // 4.3 s
	RNRCode     = 14 // 1.28 ms
	Depth       = 4  // READs and atomics that the target may have outstanding

	TargetPSN rocev2.PSN = 0x200000 // that the target sends first
)

func orDefault(n, def int) int {
	switch n {
	case 0:
		return def
	case -1:
		return 0
	}
	return n
}

func (o *Options) fill() {
	if o.Kind == "" {
		o.Kind = "rc"
	}
	if o.Access == "" {
		o.Access = "lrwaf"
	}
	if o.PSN == 0 {
		o.PSN = defaultPSN
	}
	o.MTU, o.Timeout = orDefault(o.MTU, MTU), orDefault(o.Timeout, lateTimeout)
	o.Retry, o.RNRRetry, o.DestRd = orDefault(o.Retry, 7), orDefault(o.RNRRetry, 7), orDefault(o.DestRd, 4)
	o.RecvSize = orDefault(o.RecvSize, 1024)
}

// Pair is the queue pair that the target has made.
type Pair struct {
	QPN      rocev2.QPN
	VA       uint64 // of the memory
	RKey     uint32 // of the memory, with all rights
	ReadOnly uint32 // of the memory, with the right to be read
	Foreign  uint32 // of other memory, in another protection domain
}

// make asks the target for a queue pair.
func (c *Conn) make(s *Scene, o Options) (Pair, rocev2.PSN, error) {
	p, err := c.qp(o, s.wire.link.Addr().WithZone(""), s.qpn)
	return p, o.PSN, err
}

func (c *Conn) qp(o Options, addr netip.Addr, qpn rocev2.QPN) (Pair, error) {
	v, err := c.do(0, "qp type=%s addr=%v qpn=%d rqpsn=%d sqpsn=%d mtu=%d access=%s timeout=%d retry=%d rnrretry=%d rnr=%d rd=%d destrd=%d qkey=%#x receives=%d size=%d",
		o.Kind, addr, qpn, o.PSN, TargetPSN, o.MTU, o.Access, o.Timeout, o.Retry, o.RNRRetry, RNRCode, Depth, o.DestRd, o.QKey, o.Receives, o.RecvSize)
	if err != nil {
		return Pair{}, err
	}
	key := func(name string) uint32 { return uint32(v.number(name, math.MaxUint32)) }
	p := Pair{rocev2.QPN(v.number("qpn", 1<<24-1)), v.number("va", math.MaxUint64), key("rkey"), key("readonly"), key("foreign")}
	n := v.number("len", math.MaxUint64)
	if v.err == nil && (p.QPN == 0 || n < MemoryLen) {
		v.err = fmt.Errorf("the target made a queue pair %d with %d bytes, not one with %d bytes", p.QPN, n, MemoryLen)
	}
	if v.err == nil && (p.RKey == p.ReadOnly || p.RKey == p.Foreign || p.ReadOnly == p.Foreign) {
		v.err = fmt.Errorf("the target gives the keys rkey=%#x readonly=%#x foreign=%#x: they must be three", p.RKey, p.ReadOnly, p.Foreign)
	}
	return p, v.err
}

// maxHex is how many bytes one line carries.
const maxHex = 2048

func (c *Conn) fill(off int, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), maxHex)
		if _, err := c.do(0, "fill off=%d hex=%x", off, data[:n]); err != nil {
			return err
		}
		off, data = off+n, data[n:]
	}
	return nil
}

func (c *Conn) mem(off, n int) ([]byte, error) {
	var all []byte
	for len(all) < n {
		k := min(n-len(all), maxHex)
		v, err := c.do(0, "mem off=%d len=%d", off+len(all), k)
		if err != nil {
			return nil, err
		}
		b, err := hex.DecodeString(v.text["hex"])
		if err != nil || len(b) != k {
			return nil, fmt.Errorf("the target shows %d bytes of memory, not %d (%v)", len(b), k, err)
		}
		all = append(all, b...)
	}
	return all, nil
}

// Completion is one of the target's.
type Completion struct {
	ID     uint64
	Status int // of ibv_wc_status
	Length int
	Imm    uint32
}

// wc waits for a completion of the target; it reports false if there is none.
func (c *Conn) wc(wait time.Duration) (Completion, bool, error) {
	v, err := c.do(wait, "wc ms=%d", wait.Milliseconds())
	if err != nil {
		return Completion{}, false, err
	}
	if _, none := v.text["none"]; none {
		return Completion{}, false, nil
	}
	w := Completion{v.number("id", math.MaxUint64), int(v.number("status", 255)), int(v.number("len", math.MaxUint32)), uint32(v.number("imm", math.MaxUint32))}
	return w, true, v.err
}
