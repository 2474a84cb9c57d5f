package target

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// What a client has.
const (
	memoryLen = 1 << 16
	recvBase  = 1 << 15
	firstRecv = 100
	maxQueue  = 64
	maxShown  = 4096 // bytes of one mem
)

// session is what one client has made.
type session struct {
	ctx     context.Context
	dev     *verbs.Device
	release string
	anyPeer bool
	from    net.Addr // the client

	qp      *verbs.QP
	cq      *verbs.CQ
	mr      *verbs.MR
	closers []func() error // in the order of making
}

// close destroys everything, what was made last first.
func (s *session) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		_ = s.closers[i]() // an object that is closed with its device is gone
	}
	s.closers, s.qp = nil, nil
}

func (s *session) hello() string {
	release := s.release
	if release == "" {
		release = "-"
	}
	return fmt.Sprintf("protocol=1 kind=rocev2 release=%s device=%v addr=%v mtu=%d caps=rc,uc,ud,atomic,atomic-write,flush",
		strings.ReplaceAll(release, " ", "_"), s.dev.Addr(), s.dev.Addr().WithZone(""), s.dev.QueryPort().ActiveMTU.Bytes())
}

// rights of a letter.
var rights = map[rune]verbs.Access{'l': verbs.LocalWrite, 'r': verbs.RemoteRead, 'w': verbs.RemoteWrite, 'a': verbs.RemoteAtomic, 'f': verbs.FlushGlobal}

var kinds = map[string]verbs.QPType{"rc": verbs.RC, "uc": verbs.UC, "ud": verbs.UD}

// setup is what a queue pair is made with.
type setup struct {
	kind           verbs.QPType
	peer           verbs.Endpoint
	sqpsn          verbs.PSN
	mtu            verbs.MTU
	access         verbs.Access
	timeout, retry uint8
	rnrRetry, rnr  uint8
	rd, destRd     uint8
	qkey           uint32
	receives, size int
}

func parseSetup(p *parameters) (setup, error) {
	const psn = 1<<24 - 1
	u := setup{
		peer:  verbs.Endpoint{QPN: verbs.QPN(p.number("qpn", psn)), PSN: verbs.PSN(p.number("rqpsn", psn))},
		sqpsn: verbs.PSN(p.number("sqpsn", psn)), timeout: uint8(p.number("timeout", 31)), retry: uint8(p.number("retry", 7)),
		rnrRetry: uint8(p.number("rnrretry", 7)), rnr: uint8(p.number("rnr", 31)), rd: uint8(p.number("rd", 16)), destRd: uint8(p.number("destrd", 16)),
		qkey: uint32(p.number("qkey", 1<<32-1)), receives: int(p.number("receives", maxQueue)), size: int(p.number("size", memoryLen-recvBase)),
	}
	var ok bool
	if u.kind, ok = kinds[p.values["type"]]; !ok {
		return u, fmt.Errorf("type=%.10s: it is rc, uc or ud", p.values["type"])
	}
	for _, letter := range p.values["access"] {
		if rights[letter] == 0 {
			return u, fmt.Errorf("access=%.10s: it is made of l, r, w, a and f", p.values["access"])
		}
		u.access |= rights[letter]
	}
	var err error
	if u.mtu, err = verbs.MTUOf(int(p.number("mtu", 4096))); err != nil {
		return u, err
	}
	if u.peer.Addr, err = netip.ParseAddr(p.values["addr"]); err != nil {
		return u, err
	}
	if u.receives*u.size > memoryLen-recvBase {
		return u, errors.New("the receives do not fit the memory")
	}
	return u, p.err
}

// make makes the queue pair and its memory, in place of one that is there.
func (s *session) make(p *parameters) (string, error) {
	u, err := parseSetup(p)
	if err != nil {
		return "", err
	}
	if err := s.allowed(u.peer.Addr); err != nil {
		return "", err
	}
	s.close()
	text, err := s.build(u)
	if err != nil {
		s.close()
	}
	return text, err
}

// allowed refuses traffic to hosts that have not asked for it.
func (s *session) allowed(peer netip.Addr) error {
	tcp, ok := s.from.(*net.TCPAddr)
	if s.anyPeer || !ok { // a pipe inside the process
		return nil
	}
	from, peer := tcp.AddrPort().Addr().Unmap().WithZone(""), peer.Unmap().WithZone("")
	if from == peer || from.IsLoopback() && peer.IsLoopback() {
		return nil
	}
	return fmt.Errorf("you connect from %v, so traffic to %v is refused", from, peer)
}

func (s *session) build(u setup) (string, error) {
	pd, err := s.dev.AllocPD()
	if err != nil {
		return "", err
	}
	s.closers = append(s.closers, pd.Close)
	other, err := s.dev.AllocPD()
	if err != nil {
		return "", err
	}
	s.closers = append(s.closers, other.Close)
	all := verbs.LocalWrite | verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic | verbs.FlushGlobal
	memory := make([]byte, memoryLen)
	var keys [3]*verbs.MR
	for i, at := range []struct {
		pd     *verbs.PD
		buf    []byte
		access verbs.Access
	}{{pd, memory, all}, {pd, memory, verbs.RemoteRead}, {other, make([]byte, memoryLen), all}} {
		opts := []verbs.RegOption(nil)
		if i > 0 { // at the same address, so that only the key is wrong
			opts = append(opts, verbs.WithIOVA(keys[0].Addr()))
		}
		if keys[i], err = at.pd.RegisterMemory(at.buf, at.access, opts...); err != nil {
			return "", err
		}
		s.closers = append(s.closers, keys[i].Close)
	}
	s.mr = keys[0]
	if s.cq, err = s.dev.CreateCQ(4 * maxQueue); err != nil {
		return "", err
	}
	s.closers = append(s.closers, s.cq.Close)
	if s.qp, err = pd.CreateQP(verbs.QPConfig{Type: u.kind, SendCQ: s.cq, RecvCQ: s.cq, MaxSendWR: maxQueue, MaxRecvWR: maxQueue}); err != nil {
		return "", err
	}
	s.closers = append(s.closers, s.qp.Close)
	if err := s.connect(u); err != nil {
		return "", err
	}
	for i := range u.receives {
		if err := s.postRecv(uint64(firstRecv+i), recvBase+i*u.size, u.size); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("qpn=%d va=%#x len=%d rkey=%#x readonly=%#x foreign=%#x", s.qp.QPN(), s.mr.Addr(), memoryLen,
		uint32(keys[0].RKey()), uint32(keys[1].RKey()), uint32(keys[2].RKey())), nil
}

// connect takes the queue pair to RTS. What the peer is to send first is known
// to both sides before.
func (s *session) connect(u setup) error {
	if u.kind == verbs.UD {
		return s.qp.Activate(u.qkey)
	}
	a := verbs.Attr{
		State: verbs.StateInit, Port: 1, Access: u.access,
		AV: verbs.AddressVector{DGID: u.peer.Addr, HopLimit: 64}, PathMTU: u.mtu, DestQPN: u.peer.QPN, RQPSN: u.peer.PSN, SQPSN: u.sqpsn,
		MaxDestRdAtomic: u.destRd, MaxRdAtomic: u.rd, MinRNRTimer: u.rnr, Timeout: u.timeout, RetryCount: u.retry, RNRRetry: u.rnrRetry,
	}
	toRTR := verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN
	toRTS := verbs.AttrState | verbs.AttrSQPSN
	if u.kind == verbs.RC {
		toRTR |= verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer
		toRTS |= verbs.AttrTimeout | verbs.AttrRetryCount | verbs.AttrRNRRetry | verbs.AttrMaxRdAtomic
	}
	for _, step := range []struct {
		state verbs.State
		mask  verbs.AttrMask
	}{
		{verbs.StateInit, verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccess},
		{verbs.StateRTR, toRTR}, {verbs.StateRTS, toRTS},
	} {
		a.State = step.state
		if err := s.qp.Modify(&a, step.mask); err != nil {
			return fmt.Errorf("to %v: %w", step.state, err)
		}
	}
	return nil
}

// place returns off and len, which must be inside the memory.
func place(p *parameters) (off, n int, err error) {
	off, n = int(p.number("off", memoryLen)), int(p.number("len", memoryLen))
	if p.err == nil && n > memoryLen-off {
		p.err = fmt.Errorf("%d bytes at %d are not inside the memory", n, off)
	}
	return off, n, p.err
}

func (s *session) postRecv(id uint64, off, n int) error {
	return s.qp.PostRecv(verbs.RecvWR{ID: id, SGList: []verbs.SGE{s.mr.Slice(off, n)}})
}

func (s *session) recv(p *parameters) (string, error) {
	id := p.number("id", 1<<32)
	off, n, err := place(p)
	if err != nil {
		return "", err
	}
	return "", s.postRecv(id, off, n)
}

var operations = map[string]verbs.Opcode{
	"send": verbs.OpSend, "send-imm": verbs.OpSendImm, "write": verbs.OpWrite, "write-imm": verbs.OpWriteImm, "read": verbs.OpRead,
	"fetch-add": verbs.OpFetchAdd, "compare-swap": verbs.OpCompareSwap,
}

func (s *session) post(p *parameters) (string, error) {
	op, ok := operations[p.values["op"]]
	if !ok {
		return "", fmt.Errorf("no operation %.20q", p.values["op"])
	}
	wr := verbs.SendWR{
		ID: p.number("id", 1<<32), Opcode: op, Signaled: true, Fence: p.number("fence", 1) == 1, Imm: uint32(p.number("imm", 1<<32-1)),
		Remote:     verbs.RemoteAddr{Addr: p.number("va", 1<<64-1), RKey: verbs.Key(p.number("rkey", 1<<32-1))},
		CompareAdd: p.number("add", 1<<64-1), Swap: p.number("swap", 1<<64-1),
	}
	off, n, err := place(p)
	if err != nil {
		return "", err
	}
	if n > 0 {
		wr.SGList = []verbs.SGE{s.mr.Slice(off, n)}
	}
	return "", s.qp.PostSend(wr)
}

func (s *session) fill(p *parameters) (string, error) {
	b, err := hex.DecodeString(p.values["hex"])
	if err != nil {
		return "", err
	}
	off := int(p.number("off", memoryLen))
	if p.err != nil {
		return "", p.err
	}
	_, err = s.mr.WriteAt(b, int64(off))
	return "", err
}

func (s *session) mem(p *parameters) (string, error) {
	off, n, err := place(p)
	if err == nil && n > maxShown {
		err = fmt.Errorf("at most %d bytes at a time", maxShown)
	}
	if err != nil {
		return "", err
	}
	b := make([]byte, n)
	if _, err := s.mr.ReadAt(b, int64(off)); err != nil {
		return "", err
	}
	return fmt.Sprintf("hex=%x", b), nil
}

func (s *session) wc(p *parameters) (string, error) {
	wait := time.Duration(p.number("ms", uint64(maxWait.Milliseconds()))) * time.Millisecond
	if p.err != nil {
		return "", p.err
	}
	var wc [1]verbs.WC
	n := s.cq.Poll(wc[:])
	if n == 0 && wait > 0 {
		ctx, cancel := context.WithTimeout(s.ctx, wait)
		defer cancel()
		var err error
		if n, err = s.cq.Wait(ctx, wc[:]); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return "", err
		}
	}
	if n == 0 {
		return "none", nil
	}
	return fmt.Sprintf("id=%d status=%d len=%d imm=%#x", wc[0].ID, uint8(wc[0].Status), wc[0].ByteLen, wc[0].Imm), nil
}

func (s *session) state(*parameters) (string, error) {
	return "state=" + strings.ToUpper(s.qp.State().String()), nil
}
