package qptest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// The memory of each side of a script: one region "m" at virtual address base.
// Its first half holds a pattern (what requests send), its second half zeros
// (where data arrives).
const (
	memBase = 0x1000
	memHalf = 0x10000
)

// region is memory of a script with its name.
type region struct {
	name  string
	iova  uint64
	bytes []byte
	disk  *disk
	reg   *memreg.Region // nil once deregistered
	lkey  ib.Key
	rkey  ib.Key
}

// actor is one side of a script: a, b.
type actor struct {
	*endpoint
	name    string
	qpn     rocev2.QPN
	node    *node
	peer    *actor
	regions []*region
	windows []*window
	flow    rocev2.Flow // of what it sends
	held    []carried   // packets taken off the wire by hold=
	polled  int         // packets emitted during the running command
	srq     *sharedReceives
	to      *ib.AddressHandle // UD: of the other side
	xrcd    xrcDomain         // of an XRC target
}

// scene is the state of one running script.
type scene struct {
	now    clock.Time
	actors [2]*actor
	out    []string
}

func newScene() *scene {
	s := &scene{}
	for i, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		key := uint32(0x5eed0000 + i*0x1000)
		random := func() uint32 { key += 0x11; return key }
		a := &actor{name: string(rune('a' + i)), qpn: rocev2.QPN(0x11 * (i + 1)), node: newNode(netip.MustParseAddr(addr), random)}
		s.actors[i] = a
	}
	s.actors[0].peer, s.actors[1].peer = s.actors[1], s.actors[0]
	for _, a := range s.actors {
		a.to = &ib.AddressHandle{Domain: a.node.pd}
		a.to.SetVector(&ib.AddressVector{DGID: a.peer.node.addr})
		a.flow = rocev2.NewFlow(a.node.addr, a.peer.node.addr, 0xc000, rocev2.UDPPort)
		if err := s.addRegion(a, "m", memBase, 2*memHalf, accessAll|accessFlushGlobal|accessFlushPersistent, a.node.pd); err != nil {
			panic(err)
		}
		pattern(a.regions[0].bytes[:memHalf], int(a.qpn))
	}
	return s
}

func (s *scene) addRegion(a *actor, name string, iova uint64, n int, access ib.Access, pd *memreg.PD) error {
	r := &region{name: name, iova: iova, bytes: alignedBytes(n)}
	r.disk = &disk{Memory: memreg.Local(r.bytes)}
	reg, err := a.node.table.Register(pd, r.disk, memreg.Options{Access: access, IOVA: iova, Base: memreg.BaseIOVA})
	if err != nil {
		return err
	}
	r.reg, r.lkey, r.rkey = reg, reg.LKey(), reg.RKey()
	a.regions = append(a.regions, r)
	return nil
}

func (s *scene) printf(f string, args ...any) { s.out = append(s.out, fmt.Sprintf(f, args...)) }

func (s *scene) actor(name string) (*actor, error) {
	for _, a := range s.actors {
		if a.name == name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("no side %q", name)
}

// live reports whether both sides are real; if only one is, its peer is the
// script itself, and whatever it emits is printed at once.
func (s *scene) live() bool { return s.actors[0].endpoint != nil && s.actors[1].endpoint != nil }

func (s *scene) keyName(k ib.Key) string {
	for _, a := range s.actors {
		for _, r := range a.regions {
			if k == r.lkey || k == r.rkey {
				return a.name + "." + r.name
			}
		}
	}
	if name, _ := s.slotName(k); name != "" {
		return name
	}
	return fmt.Sprintf("%#x", uint32(k))
}

func (s *scene) keyOf(name string) (ib.Key, error) {
	if side, reg, ok := strings.Cut(name, "."); ok {
		a, err := s.actor(side)
		if err != nil {
			return 0, err
		}
		if k, ok := a.slotKey(reg, false); ok {
			return k, nil
		}
		r, err := a.region(reg)
		if err != nil {
			return 0, err
		}
		return r.rkey, nil
	}
	n, err := strconv.ParseUint(name, 0, 32)
	return ib.Key(n), err
}

func (a *actor) region(name string) (*region, error) {
	for _, r := range a.regions {
		if r.name == name {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%s has no region %q", a.name, name)
}

// at returns n bytes of a's memory at a virtual address.
func (a *actor) at(va uint64, n int) ([]byte, error) {
	for _, r := range a.regions {
		if va >= r.iova && va-r.iova+uint64(n) <= uint64(len(r.bytes)) {
			return r.bytes[va-r.iova:][:n], nil
		}
	}
	return nil, fmt.Errorf("%s has no %d bytes at %#x", a.name, n, va)
}

// args are the words of a command after its name and side.
type args struct {
	pos []string
	kv  map[string]string
}

func parseArgs(words []string) args {
	a := args{kv: map[string]string{}}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			a.kv[k] = v
		} else {
			a.pos = append(a.pos, w)
		}
	}
	return a
}

func (a *args) has(word string) bool {
	for _, p := range a.pos {
		if p == word {
			return true
		}
	}
	return false
}

// num reads a number and takes it off the list, so that leftovers are typing
// errors.
func (a *args) num(key string, def uint64) (uint64, error) {
	v, ok := a.kv[key]
	if !ok {
		return def, nil
	}
	delete(a.kv, key)
	n, err := strconv.ParseUint(v, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%s=%s: %w", key, v, err)
	}
	return n, nil
}

func (a *args) text(key, def string) string {
	v, ok := a.kv[key]
	if !ok {
		return def
	}
	delete(a.kv, key)
	return v
}

// done reports arguments that were not read.
func (a *args) done() error {
	for k := range a.kv {
		return fmt.Errorf("no argument %q here", k)
	}
	return nil
}

// nums reads several numbers at once.
func (a *args) nums(fields map[string]*uint64) error {
	var errs []error
	for k, p := range fields {
		n, err := a.num(k, *p)
		*p = n
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// run executes one line of a script and returns what it printed.
func (s *scene) run(line string) ([]string, error) {
	words := strings.Fields(line)
	cmd, ok := commands[words[0]]
	if !ok {
		return nil, fmt.Errorf("no command %q", words[0])
	}
	s.out = nil
	for _, a := range s.actors {
		a.polled = 0
	}
	if err := cmd(s, words[1:]); err != nil {
		return nil, err
	}
	if !s.live() && words[0] != "qp" {
		s.drainLone("")
	}
	for _, a := range s.actors {
		if a.endpoint == nil {
			continue
		}
		if err := a.Check(); err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
	}
	return s.out, nil
}

// drainLone prints what the only real side has to send.
func (s *scene) drainLone(prefix string) {
	for _, a := range s.actors {
		if a.endpoint == nil {
			continue
		}
		for {
			wire := s.poll(a)
			if wire == nil {
				break
			}
			s.printf("%s%s", prefix, s.show(a, wire))
		}
	}
}

// poll takes one packet from a and returns it sealed, as it crosses the wire.
func (s *scene) poll(a *actor) []byte {
	var w onePacket
	if a.Poll(s.now, qp.Limit{Packets: 1, Bytes: math.MaxInt}, &w).Packets == 0 {
		return nil
	}
	a.polled++
	if a.polled > 100000 {
		panic("script: the QP transmits without end")
	}
	if w.linux {
		return a.flow.SealKernelFlush(0, w.buf[:w.n:w.n])
	}
	return a.flow.Seal(0, w.buf[:w.n:w.n])
}

// onePacket is a Writer for one packet.
type onePacket struct {
	buf   []byte
	n     int
	linux bool // a FLUSH for Linux
}

func (w *onePacket) Room() []byte {
	w.buf = make([]byte, rocev2.MaxPacketLen)
	return w.buf
}

func (w *onePacket) Commit(n int, _ *ib.AddressVector, k qp.PacketKind) {
	w.n, w.linux = n, k == qp.KernelFlush
}

// arrival is a packet with or without Congestion Experienced.
func arrival(src, dst netip.Addr, p *rocev2.Packet, marked bool) *qp.Arrival {
	a := &qp.Arrival{Packet: p, Src: src, Dst: dst, HopLimit: 63}
	if marked {
		a.TrafficClass = 3
	}
	return a
}

// show prints a packet that a sent, decoded again from its bytes.
func (s *scene) show(a *actor, wire []byte) string {
	var p rocev2.Packet
	if err := p.Parse(wire); err != nil {
		return fmt.Sprintf("%s> UNREADABLE %v % x", a.name, err, wire)
	}
	text := a.name + "> " + format(&p, a.peer.qpn, s)
	if n := len(wire) - rocev2.ICRCLen; a.flow.ICRC(0, wire[:n]) != binary.LittleEndian.Uint32(wire[n:]) {
		text += " (ICRC of Linux)"
	}
	return text
}

// hand gives a packet to its receiver as the device would: ICRC, parser, QP.
func (s *scene) hand(to *actor, c carried) string {
	if !to.peer.flow.Verify(0, c.wire) {
		return "drop: icrc"
	}
	var p rocev2.Packet
	if err := p.Parse(c.wire); err != nil {
		return "drop: " + err.Error()
	}
	return s.handParsed(to, to.peer.node.addr, &p, c.marked)
}

func (s *scene) handParsed(to *actor, src netip.Addr, p *rocev2.Packet, marked bool) string {
	if d := to.HandlePacket(s.now, arrival(src, to.node.addr, p, marked)); d != qp.DropNone {
		return fmt.Sprintf("%s drops it: %v", to.name, d)
	}
	return ""
}

// duration prints virtual time without trailing noise.
func duration(t clock.Time) string { return time.Duration(t).String() }
