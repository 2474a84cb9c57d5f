package qptest

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// commands of the script language; doc.go describes them.
var commands map[string]func(s *scene, words []string) error

func init() {
	commands = map[string]func(s *scene, words []string) error{
		"qp": (*scene).cmdQP, "clear": (*scene).cmdClear, "mr": (*scene).cmdMR, "dereg": (*scene).cmdDereg,
		"post": (*scene).cmdPost, "recv": (*scene).cmdRecv, "srq": (*scene).cmdSRQ, "xsrq": (*scene).cmdXSRQ,
		"deliver": (*scene).cmdDeliver, "release": (*scene).cmdRelease, "inject": (*scene).cmdInject,
		"advance": (*scene).cmdAdvance, "modify": (*scene).cmdModify,
		"cq": (*scene).cmdCQ, "events": (*scene).cmdEvents, "state": (*scene).cmdState,
		"mw": (*scene).cmdMW, "free": (*scene).cmdFree, "fast": (*scene).cmdFast, "map": (*scene).cmdMap,
		"mem": (*scene).cmdMem, "same": (*scene).cmdSame, "load": (*scene).cmdLoad, "store": (*scene).cmdStore,
		"persist": (*scene).cmdPersist,
		"grh":     (*scene).cmdGRH,
	}
}

// side splits the name of a side off the words of a command.
func (s *scene) side(words []string) (*actor, []string, error) {
	if len(words) == 0 {
		return nil, nil, errors.New("which side?")
	}
	a, err := s.actor(words[0])
	return a, words[1:], err
}

func (s *scene) sideWithQP(words []string) (*actor, []string, error) {
	a, rest, err := s.side(words)
	if err == nil && a.endpoint == nil {
		err = fmt.Errorf("%s has no QP", a.name)
	}
	return a, rest, err
}

var stateNames = map[string]ib.State{
	"reset": ib.StateReset, "init": ib.StateInit, "rtr": ib.StateRTR, "rts": ib.StateRTS,
	"sqd": ib.StateSQD, "sqe": ib.StateSQE, "err": ib.StateErr,
}

func parseAccess(s string) (ib.Access, error) {
	var acc ib.Access
	for _, c := range s {
		bit, ok := map[rune]ib.Access{'l': accessLocal, 'w': accessWrite, 'r': accessRead, 'a': accessAtomic, 'b': accessBind, 'z': accessZero,
			'g': accessFlushGlobal, 'p': accessFlushPersistent, '-': 0}[c]
		if !ok {
			return 0, fmt.Errorf("access %q: want letters of lwragpbz, or -", s)
		}
		acc |= bit
	}
	return acc, nil
}

// cmdQP: qp a|b|ab [mtu=1024] [psn=] [rqpsn=] [timeout=14] [retry=7] [rnr=7] …
func (s *scene) cmdQP(words []string) error {
	if len(words) == 0 {
		return errors.New("which side?")
	}
	for _, c := range words[0] {
		a, err := s.actor(string(c))
		if err != nil {
			return err
		}
		if err := s.makeQP(a, parseArgs(words[1:])); err != nil {
			return err
		}
	}
	return nil
}

// cmdClear takes both QPs away, so that the next one stands alone again.
func (s *scene) cmdClear([]string) error {
	s.actors[0].endpoint, s.actors[1].endpoint = nil, nil
	return nil
}

func (s *scene) makeQP(a *actor, w args) error {
	psns := [2]uint64{100, 200}
	me := int(a.name[0] - 'a')
	psn, rqpsn := psns[me], psns[1-me]
	mtu, timeout, retry, rnr, rnrTimer := uint64(1024), uint64(14), uint64(7), uint64(7), uint64(12)
	rd, destRd := uint64(4), uint64(4)
	sendWR, recvWR, sendSGE, recvSGE, inline := uint64(64), uint64(64), uint64(4), uint64(4), uint64(64)
	qkey := uint64(defaultQKey)
	window, windowBytes, chunk, cqe, dqpn, keep := uint64(0), uint64(0), uint64(0), uint64(0), uint64(a.peer.qpn), uint64(0)
	line, burst := uint64(1e9), uint64(1)
	err := w.nums(map[string]*uint64{
		"psn": &psn, "rqpsn": &rqpsn, "mtu": &mtu, "timeout": &timeout, "retry": &retry, "rnr": &rnr, "rnrtimer": &rnrTimer,
		"rd": &rd, "destrd": &destRd, "sendwr": &sendWR, "recvwr": &recvWR, "sendsge": &sendSGE, "recvsge": &recvSGE,
		"inline": &inline, "window": &window, "windowbytes": &windowBytes, "chunk": &chunk, "cqe": &cqe, "dqpn": &dqpn,
		"keep": &keep, "qkey": &qkey, "line": &line, "burst": &burst,
	})
	if err != nil {
		return err
	}
	probe, err := time.ParseDuration(w.text("probe", "0"))
	if err != nil {
		return err
	}
	notify, err := time.ParseDuration(w.text("cnp", "0"))
	if err != nil {
		return err
	}
	control := w.text("cc", "window")
	access, err := parseAccess(w.text("access", "wragp"))
	if err != nil {
		return err
	}
	state, ok := stateNames[w.text("state", "rts")]
	typ, known := qpTypes[w.text("type", "rc")]
	if err := w.done(); err != nil || !ok || !known {
		return errors.Join(err, errors.New("no such state, or type"))
	}
	path, err := rocev2.MTUOf(int(mtu))
	if err != nil {
		return fmt.Errorf("mtu=%d", mtu)
	}
	c := qp.Config{
		QPN: a.qpn, Type: typ, PortMTU: path, MinProbe: probe, MaxSendWR: int(sendWR), MaxRecvWR: int(recvWR), MaxSendSGE: int(sendSGE), MaxRecvSGE: int(recvSGE),
		MaxInline: int(inline), SignalAll: w.has("sigall"), ReadChunk: int(chunk),
		Window: qp.WindowConfig{InitialBytes: int(windowBytes), MaxBytes: int(windowBytes), MaxPSNs: int(window)},
	}
	c.NotifyInterval, c.NotifyHold = notify, w.has("cnphold")
	if c.Congestion, err = controllerOf(control, c.Window, line, int(burst)); err != nil {
		return err
	}
	c.Invalidate = func(key ib.Key) ib.Fault { return s.invalidate(a, key) }
	if w.has("srq") {
		a.srq = newSharedReceives(s, a, int(recvSGE))
		c.RecvSource = a.srq
	}
	if typ == ib.XRCTarget {
		c.Domain = a.domain()
	}
	e, err := newEndpoint(a.node, c)
	if err != nil {
		return err
	}
	e.sendCQ.limit, e.recvCQ.limit = int(cqe), int(cqe)
	if keep > 0 {
		e.SetReorder(qp.NewPool(int(keep)))
	}
	a.endpoint = e
	return e.connect(ib.Attr{
		State: state, Access: access, Port: 1, AV: ib.AddressVector{DGID: a.peer.node.addr, HopLimit: 64},
		PathMTU: path, Timeout: uint8(timeout), RetryCount: uint8(retry), RNRRetry: uint8(rnr), MinRNRTimer: uint8(rnrTimer),
		SQPSN: rocev2.PSN(psn), RQPSN: rocev2.PSN(rqpsn), MaxRdAtomic: uint8(rd), MaxDestRdAtomic: uint8(destRd),
		DestQPN: rocev2.QPN(dqpn), QKey: uint32(qkey),
	})
}

// cmdMR: mr b name at=0x100000 len=4096 access=lw [pd=other]
func (s *scene) cmdMR(words []string) error {
	a, rest, err := s.side(words)
	if err != nil {
		return err
	}
	w := parseArgs(rest)
	at, n := uint64(0x100000), uint64(4096)
	if err := w.nums(map[string]*uint64{"at": &at, "len": &n}); err != nil {
		return err
	}
	access, err := parseAccess(w.text("access", "lwra"))
	pd := a.node.pd
	if w.text("pd", "") == "other" {
		pd = a.node.table.AllocPD()
	}
	if len(w.pos) != 1 {
		return errors.New("a region needs a name")
	}
	if err := errors.Join(err, w.done()); err != nil {
		return err
	}
	return s.addRegion(a, w.pos[0], at, int(n), access, pd)
}

func (s *scene) cmdDereg(words []string) error {
	a, rest, err := s.side(words)
	if err != nil || len(rest) != 1 {
		return errors.Join(err, errors.New("dereg SIDE REGION"))
	}
	r, err := a.region(rest[0])
	if err != nil {
		return err
	}
	if err := a.node.table.Deregister(r.reg); err != nil {
		s.printf("error: %v", err)
		return nil
	}
	r.reg = nil
	return nil
}

var sendOpcodes = map[string]ib.Opcode{
	"send": ib.OpSend, "send-imm": ib.OpSendImm, "send-inv": ib.OpSendInv, "write": ib.OpWrite, "write-imm": ib.OpWriteImm,
	"read": ib.OpRead, "read-inv": ib.OpReadInv, "local-inv": ib.OpLocalInv, "bind-mw": ib.OpBindMW, "reg-mr": ib.OpRegMR,
	"compare-swap": ib.OpCompareSwap, "fetch-add": ib.OpFetchAdd,
	"flush": ib.OpFlush, "atomic-write": ib.OpAtomicWrite,
}

// sgeList reads at=, len= and lkey= (or sge=ADDR+LEN,ADDR+LEN).
func (s *scene) sgeList(a *actor, w *args, at, n uint64) ([]ib.SGE, error) {
	if err := w.nums(map[string]*uint64{"at": &at, "len": &n}); err != nil {
		return nil, err
	}
	lkey := a.regions[0].lkey
	if name := w.text("lkey", ""); name != "" {
		if r, err := a.region(name); err == nil {
			lkey = r.lkey
		} else if k, ok := a.slotKey(name, true); ok {
			lkey = k
		} else if k, err := strconv.ParseUint(name, 0, 32); err == nil {
			lkey = ib.Key(k)
		} else {
			return nil, fmt.Errorf("lkey=%s", name)
		}
	}
	list := w.text("sge", "")
	if list == "" {
		return []ib.SGE{{Addr: at, Length: uint32(n), LKey: lkey}}, nil
	}
	var sg []ib.SGE
	for _, e := range strings.Split(list, ",") {
		addr, length, _ := strings.Cut(e, "+")
		x, err1 := strconv.ParseUint(addr, 0, 64)
		y, err2 := strconv.ParseUint(length, 0, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		sg = append(sg, ib.SGE{Addr: x, Length: uint32(y), LKey: lkey})
	}
	return sg, nil
}

// cmdPost: post a write id=1 len=5000 [at=] [to=] [rkey=] [fence] [solicited]
// [unsignaled] [inline] …
func (s *scene) cmdPost(words []string) error {
	a, rest, err := s.sideWithQP(words)
	if err != nil || len(rest) == 0 {
		return errors.Join(err, errors.New("post SIDE OPERATION"))
	}
	op, ok := sendOpcodes[rest[0]]
	if !ok {
		return fmt.Errorf("no operation %q", rest[0])
	}
	w := parseArgs(rest[1:])
	if op.Is(ib.OpLocal) {
		return s.postLocal(a, op, &w)
	}
	wr := ib.SendWR{Opcode: op, Signaled: !w.has("unsignaled"), Solicited: w.has("solicited"), Fence: w.has("fence")}
	at, to, n := uint64(memBase), uint64(memBase+memHalf), uint64(8)
	if op.Is(ib.OpReads | ib.OpAtomic) {
		at, to = to, at
	}
	if op == ib.OpFlush {
		if err := readFlush(&w, &wr); err != nil {
			return err
		}
		n = 0
	}
	var imm, compareAdd uint64
	repeat := uint64(1)
	rkey := w.text("rkey", a.peer.name+".m")
	inv := w.text("inv", "0")
	err = w.nums(map[string]*uint64{
		"id": &wr.ID, "to": &to, "imm": &imm, "add": &compareAdd, "compare": &compareAdd, "swap": &wr.Swap, "times": &repeat,
	})
	if err != nil {
		return err
	}
	wr.CompareAdd = compareAdd
	if wr.SGList, err = s.sgeList(a, &w, at, n); err != nil {
		return err
	}
	if a.Type() == ib.XRCInitiator {
		n, err := w.num("srqn", 1)
		if wr.RemoteSRQN = uint32(n); err != nil {
			return err
		}
	}
	if a.Type() == ib.UD {
		if err := a.address(&w, &wr); err != nil {
			return err
		}
	}
	if w.has("inline") {
		for _, sg := range wr.SGList {
			b, err := a.at(sg.Addr, int(sg.Length))
			if err != nil {
				return err
			}
			wr.Inline = append(wr.Inline, b...)
		}
		wr.SGList = nil
	}
	wr.Imm, wr.Remote.Addr = uint32(imm), to
	var errKey, errInv error
	wr.Remote.RKey, errKey = s.keyOf(rkey)
	wr.InvalidateKey, errInv = s.keyOf(inv)
	if err := errors.Join(errKey, errInv, w.done()); err != nil {
		return err
	}
	for range repeat {
		if err := a.PostSend(&wr); err != nil {
			s.printf("error: %v", err)
		}
		wr.ID++
	}
	return nil
}

// cmdRecv: recv b id=9 len=4096 [at=] [sge=] [times=4]
func (s *scene) cmdRecv(words []string) error {
	a, rest, err := s.sideWithQP(words)
	if err != nil {
		return err
	}
	w := parseArgs(rest)
	var wr ib.RecvWR
	repeat := uint64(1)
	srqn, err := w.num("srqn", 1)
	if err := errors.Join(err, w.nums(map[string]*uint64{"id": &wr.ID, "times": &repeat})); err != nil {
		return err
	}
	if wr.SGList, err = s.sgeList(a, &w, memBase+memHalf, 4096); err != nil {
		return err
	}
	if err := w.done(); err != nil {
		return err
	}
	post := a.PostRecv
	if q := a.xrcd[srqn]; q != nil {
		post = q.Post
	} else if a.srq != nil {
		post = a.srq.Post
	}
	for range repeat {
		if err := post(&wr); err != nil {
			s.printf("error: %v", err)
		}
		wr.ID++
	}
	return nil
}

func (s *scene) cmdDeliver(words []string) error {
	a := parseArgs(words)
	w, err := parseWireRules(&a)
	if err != nil {
		return err
	}
	if !s.live() {
		return errors.New("deliver needs two QPs")
	}
	s.exchange(&w, "")
	return s.finish(&w)
}

// cmdRelease puts the packets that hold= took off the wire back on it.
func (s *scene) cmdRelease(words []string) error {
	a, _, err := s.side(words)
	if err != nil {
		return err
	}
	for _, c := range a.held {
		s.printf("%s  (late)", s.show(a, c.wire))
		if why := s.hand(a.peer, c); why != "" {
			s.printf("  %s", why)
		}
	}
	a.held = nil
	return nil
}

// cmdInject: inject a PACKET [src=10.0.0.9]: a packet as though from a's peer.
func (s *scene) cmdInject(words []string) error {
	a, rest, err := s.sideWithQP(words)
	if err != nil {
		return err
	}
	src, marked := a.peer.node.addr, false
	var packet []string
	for _, w := range rest {
		if addr, ok := strings.CutPrefix(w, "src="); ok {
			if src, err = netip.ParseAddr(addr); err != nil {
				return err
			}
			continue
		}
		if w == "marked" {
			marked = true
			continue
		}
		packet = append(packet, w)
	}
	p, err := parsePacket(packet, a.qpn, s)
	if err != nil {
		return err
	}
	wire := a.peer.flow.Seal(0, p.AppendTo(nil))
	var q rocev2.Packet
	if err := q.Parse(wire); err != nil {
		return err
	}
	if why := s.handParsed(a, src, &q, marked); why != "" {
		s.printf("%s", why)
	}
	return nil
}

func (s *scene) cmdAdvance(words []string) error {
	if len(words) == 0 {
		return errors.New("advance DURATION")
	}
	d, err := time.ParseDuration(words[0])
	if err != nil {
		return err
	}
	a := parseArgs(words[1:])
	w, err := parseWireRules(&a)
	if err != nil {
		return err
	}
	if err := s.advanceTo(s.now+clock.Time(d), &w); err != nil {
		return err
	}
	return s.finish(&w)
}

// cmdModify: modify a sqd [notify]. INIT, RTR and RTS take the attributes that
// the qp command gave, psn= and rqpsn= can be changed.
func (s *scene) cmdModify(words []string) error {
	a, rest, err := s.sideWithQP(words)
	if err != nil || len(rest) == 0 {
		return errors.Join(err, errors.New("modify SIDE STATE"))
	}
	to, ok := stateNames[rest[0]]
	if !ok {
		return fmt.Errorf("no state %q", rest[0])
	}
	w := parseArgs(rest[1:])
	attr := a.attr
	attr.State = to
	psn, rqpsn := uint64(attr.SQPSN), uint64(attr.RQPSN)
	if err := w.nums(map[string]*uint64{"psn": &psn, "rqpsn": &rqpsn}); err != nil {
		return err
	}
	attr.SQPSN, attr.RQPSN = rocev2.PSN(psn), rocev2.PSN(rqpsn)
	mask := attrState
	if from := a.State(); to == from+1 && to <= ib.StateRTS {
		mask = a.requiredMask(to)
	}
	if w.has("notify") {
		attr.EnableSQDNotify = true
		mask |= attrSQDNotify
	}
	if acc := w.text("access", ""); acc != "" {
		if attr.Access, err = parseAccess(acc); err != nil {
			return err
		}
		mask |= attrAccess
	}
	if err := w.done(); err != nil {
		return err
	}
	if err := a.Modify(&attr, mask); err != nil {
		s.printf("error: %v", err)
	}
	return nil
}
