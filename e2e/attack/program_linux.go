package attack

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/uverbs"
	"github.com/gosoftroce/rocev2/uverbs/abi"
	fake "github.com/gosoftroce/rocev2/uverbs/uverbstest"
	"github.com/gosoftroce/rocev2/verbs"
)

// byPrograms are attacks of a program that has opened the victim's device as
// programs of libibverbs do: it writes commands, and what it likes into the
// queues that it shares with the device.
var byPrograms = []Attack{
	{
		Name: "program-resets",
		What: "a program says that it has not polled a million completions, and resets a queue pair again and again",
		Must: "other connections of the device go on, at nearly their pace",
		run: func(t *Trial) {
			p := openProgram(t)
			cq, q := p.newCQ(programCQE), new(programQP)
			*q = p.newQP(cq, 1)
			p.beside(func(int) {
				p.modify(q, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrQKey, ib.StateInit)
				p.modify(q, ib.AttrState, ib.StateReset)
			}, p.completions(cq))
		},
	}, {
		Name: "program-resizes",
		What: "a program says that it has not polled a million completions, and resizes their queue again and again",
		Must: "other connections of the device go on, at nearly their pace",
		run: func(t *Trial) {
			p := openProgram(t)
			cq := p.newCQ(programCQE)
			pump := p.completions(cq)
			p.beside(func(int) {
				pump(0)
				var r abi.ResizeCQResp
				var mi abi.MMInfo
				p.ask(abi.ResizeCQ, abi.ResizeCQReq{CqHandle: cq.handle, Cqe: programCQE}, &r, &mi)
				cq.Ring = p.ring(mi)
			}, nil)
		},
	}, {
		Name: "program-flushes",
		What: "a program posts 65535 receives and ends their queue pair, again and again",
		Must: "other connections of the device go on, at nearly their pace",
		run: func(t *Trial) {
			p := openProgram(t)
			cq := p.newCQ(programCQE)
			q := p.newQP(cq, 1<<16-1)
			p.beside(func(int) {
				p.modify(&q, ib.AttrState, ib.StateReset)
				p.modify(&q, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrQKey, ib.StateInit)
				q.recv.SetProducer((q.recv.Consumer() + q.recv.Mask()) & q.recv.Mask())
				p.modify(&q, ib.AttrState, ib.StateErr)
				cq.SetConsumer(cq.Producer())
			}, nil)
		},
	},
}

// programCQE is how many completions the queues of a hostile program hold.
const programCQE = 1<<20 - 1

// program is a hostile program. Its methods end the trial if a command fails.
type program struct {
	t   *Trial
	c   *uverbs.Client
	mem []byte // that it shares with the device
	pd  uint32
}

type programCQ struct {
	fake.Ring
	handle uint32
}

type programQP struct {
	handle uint32
	recv   fake.Ring
}

// openProgram opens the victim's device as a program does.
func openProgram(t *Trial) *program {
	dev := &uverbs.Device{Name: "rxe_victim", Dev: verbs.HCA(t.lab.victim.dev)}
	c, err := dev.Open(uverbs.Peer{PID: os.Getpid(), UID: uint32(os.Geteuid()) + 1}, uverbs.Quota{})
	t.check(err)
	p := &program{t: t, c: c}
	st, err := c.Memfd().Stat()
	t.check(err)
	p.mem, err = unix.Mmap(int(c.Memfd().Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	t.check(err)
	t.lab.closers = append(t.lab.closers, func() error { return errors.Join(c.Close(), unix.Munmap(p.mem)) })
	r := p.ask(abi.GetContext, abi.GetContextReq{}, &abi.GetContextResp{})
	for _, f := range r.Files {
		t.lab.closers = append(t.lab.closers, f.File.Close)
	}
	var pd abi.AllocPDResp
	p.ask(abi.AllocPD, abi.AllocPDReq{}, &pd)
	p.pd = pd.PdHandle
	return p
}

// ask writes a command, and decodes its reply.
func (p *program) ask(c abi.Command, body any, resp ...any) abi.Reply {
	room := 0
	for _, v := range resp {
		room += binary.Size(v)
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(c))
	b = binary.LittleEndian.AppendUint16(b, uint16((8+binary.Size(body))/4))
	b = binary.LittleEndian.AppendUint16(b, uint16(room/4))
	b, _ = binary.Append(b, binary.LittleEndian, body)
	r := p.c.Command(b)
	if r.Errno != 0 {
		p.t.check(r.Errno)
	}
	rest := r.Resp
	for _, v := range resp {
		n, err := binary.Decode(rest, binary.LittleEndian, v)
		p.t.check(err)
		rest = rest[n:]
	}
	return r
}

// ring returns the ring that a reply names.
func (p *program) ring(mi abi.MMInfo) fake.Ring {
	return fake.Ring{Mem: p.mem[mi.Offset:][:mi.Size]}
}

func (p *program) newCQ(n uint32) *programCQ {
	var r abi.CreateCQResp
	var mi abi.MMInfo
	p.ask(abi.CreateCQ, abi.CreateCQReq{Cqe: n, CompChannel: -1}, &r, &mi)
	return &programCQ{p.ring(mi), r.CqHandle}
}

// newQP makes a queue pair of datagrams with so many receives.
func (p *program) newQP(cq *programCQ, receives uint32) programQP {
	var r abi.CreateQPResp
	var mi abi.CreateQPDriverResp
	p.ask(abi.CreateQP, abi.CreateQPReq{PdHandle: p.pd, SendCqHandle: cq.handle, RecvCqHandle: cq.handle, MaxSendWr: 1, MaxRecvWr: receives,
		MaxSendSge: 1, MaxRecvSge: 1, QpType: uint8(ib.UD)}, &r, &mi)
	return programQP{r.QpHandle, p.ring(mi.RqMi)}
}

func (p *program) modify(q *programQP, mask ib.AttrMask, to ib.State) {
	p.ask(abi.ModifyQP, abi.ModifyQPReq{QpHandle: q.handle, AttrMask: uint32(mask), QpState: uint8(to), PortNum: 1})
}

// completions returns what has the device complete more and more into a queue,
// of which the program claims to have polled nearly nothing. It has gone around
// once already: whatever place the program names, there was a completion.
func (p *program) completions(cq *programCQ) func(int) {
	const slack = 1 << 12
	q := p.newQP(cq, slack-1)
	p.modify(&q, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrQKey, ib.StateInit)
	p.modify(&q, ib.AttrState, ib.StateErr)
	more := func(int) {
		cq.SetConsumer((cq.Producer() + 2*slack) & cq.Mask())
		q.recv.SetProducer((q.recv.Consumer() + q.recv.Mask()) & q.recv.Mask())
		p.modify(&q, ib.AttrState, ib.StateErr) // it is served soon
	}
	for done := uint32(0); done < programCQE; {
		before := cq.Producer()
		more(0)
		p.t.await("completions of the program", func() bool { return q.recv.Consumer() == q.recv.Producer() })
		done += (cq.Producer() - before) & cq.Mask()
	}
	return more
}

// beside measures what an innocent connection has while a program does
// something again and again, and something else from another thread.
func (p *program) beside(what, also func(i int)) {
	t := p.t
	c := t.neighbour()
	p.trips("without", c)
	begin := func() (stop func()) {
		n := uint64(0)
		first := flood(func(i int) { what(i); n++; runtime.Gosched() })
		second := func() {}
		if also != nil {
			second = flood(func(i int) { also(i); time.Sleep(pollTime) })
		}
		return func() {
			first()
			second()
			t.result.Sent += n
		}
	}
	stop := begin()
	p.trips("with", c)
	stop()
	t.compare(c, begin)
	t.healthy(c, 64)
	t.check(c.close())
}

// trips sends messages of a connection one after the other, and says how long
// the slowest took.
func (p *program) trips(when string, c *conn) {
	t := p.t
	all := make([]time.Duration, 0, t.Packets)
	for range t.Packets {
		start := time.Now()
		if err := t.stream(c.a, c.b, 1); err != nil {
			t.broken("the neighbour %s the attack: %v", when, err)
			return
		}
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"median", all[len(all)/2]}, {"of 1000 the slowest", all[len(all)-1-len(all)/1000]}, {"slowest", all[len(all)-1]}} {
		t.figure(f.name+" "+when, float64(f.d.Microseconds()), "µs")
	}
}
