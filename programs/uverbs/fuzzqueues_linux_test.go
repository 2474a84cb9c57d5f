package uverbs

import (
	"runtime"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
)

// FuzzQueues has a program write bytes of its choice into its rings, and post
// them. Another queue pair of the same program, and of the same completion
// queue's device, goes on.
func FuzzQueues(f *testing.F) {
	f.Add([]byte{0, 4, 12, 2, 16, 2, 196, 1, 208, 1, 1, 3, 0, 0})
	f.Add([]byte{0, 3, 12, 0, 16, 10, 184, 200, 2, 16, 5, 3, 3, 0, 6, 0})
	f.Add([]byte{1, 2, 28, 9, 40, 1, 3, 1, 4, 0, 5, 1, 0, 1, 12, 4, 3, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		p, a, b := looped(t)
		x, y := p.newQP(options{data: 8}), p.newQP(options{data: 8})
		x.connect(y)
		y.connect(x)
		in := input{ops}
		for in.more() {
			step(p, a, b, &in)
		}
		y.receive(64, 1)
		x.post(x.write(2, 8, p, 4096), inline(3))
		x.cq.expect(ib.StatusSuccess, 2, 3)
		y.cq.expect(ib.StatusSuccess, 1)
	})
}

// input is what a fuzzer says.
type input struct{ b []byte }

func (in *input) more() bool { return len(in.b) > 0 }

func (in *input) next() byte {
	if len(in.b) == 0 {
		return 0
	}
	v := in.b[0]
	in.b = in.b[1:]
	return v
}

// step does one thing that a program may do.
func step(p *app, a, b *appQP, in *input) {
	at, key := p.remote(0)
	switch in.next() % 9 {
	case 0: // a good request with some bytes that are not
		a.send.Post(func(e []byte) {
			fake.PutSend(e, fake.SendWR{ID: 1, Opcode: fake.Send, Flags: fake.Signaled, SGE: []ib.SGE{p.sge(0, 64)}})
			in.patch(e)
		})
	case 1:
		a.send.Post(func(e []byte) {
			fake.PutSend(e, fake.SendWR{ID: 2, Opcode: fake.Write, SGE: []ib.SGE{p.sge(0, 9000)}, Remote: at, RKey: key})
			in.patch(e)
		})
	case 2:
		b.recv.Post(func(e []byte) {
			fake.PutRecv(e, 3)
			in.patch(e)
		})
	case 3:
		a.Serve()
	case 4:
		r := []fake.Ring{a.send, a.recv, b.recv}[in.next()%3]
		r.SetProducer(uint32(in.next()))
	case 5:
		r := []fake.Ring{a.send, b.recv, a.cq.Ring, b.cq.Ring}[in.next()%4]
		r.SetConsumer(uint32(in.next()))
	case 6:
		q := []*appQP{a, b}[in.next()%2]
		_ = q.Modify(&ib.Attr{State: ib.State(in.next() % 8)}, ib.AttrState)
	case 7:
		a.tryConnect(b)
		b.tryConnect(a)
	case 8:
		for _, q := range []*appQP{a, b} {
			q.Serve()
			q.cq.Poll()
		}
		runtime.Gosched()
	}
}

// patch writes a few bytes of an element.
func (in *input) patch(e []byte) {
	for range in.next() % 8 {
		e[int(in.next())%len(e)] = in.next()
	}
}
