//go:build linux

package uverbs

import (
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// events is what a client tells its program, through files: one for
// asynchronous events, and the channels of completion events.
type events struct {
	dev      *hca.Device
	deferred deferred
	async    atomic.Pointer[pipe] // nil before the program has asked for its context
	channels table[pipe]
}

// getContext opens the file with the asynchronous events (IBTA 11.2.1.4).
func (e *events) getContext(r *abi.Request, _ *abi.GetContextReq) abi.Reply {
	if e.async.Load() != nil {
		return abi.Fail(abi.EINVAL)
	}
	p, fd, err := newPipe(abi.AsyncEventLen)
	if err != nil {
		return abi.Fail(abi.EMFILE)
	}
	e.async.Store(p)
	if e.dev.Failed() {
		p.end() // the event has not reached it
	}
	out := r.Answer(abi.GetContextResp{NumCompVectors: uint32(e.dev.CompletionVectors())}, nil)
	out.Files = []abi.ReplyFile{{FD: fd, Offset: 0}}
	return out
}

// createCompChannel opens a file with completion events.
func (e *events) createCompChannel(r *abi.Request, _ *abi.CreateCompChannelReq) abi.Reply {
	e.dropChannels()
	var fd int
	h, err := e.channels.add(func(h uint32) (p *pipe, err error) {
		p, fd, err = newPipe(abi.CompEventLen)
		if err == nil {
			p.number = h
		}
		return p, err
	})
	if err != nil {
		return abi.Fail(abi.EMFILE)
	}
	if e.dev.Failed() {
		e.channels.get(h).end() // the event has not reached it
	}
	out := r.Answer(abi.CreateCompChannelResp{}, nil)
	out.Files = []abi.ReplyFile{{FD: fd, Offset: 0}}
	return out
}

// dropChannels frees the channels that the program has closed. No command says
// so.
func (e *events) dropChannels() {
	for _, p := range e.channels.all() {
		if p.users == 0 && p.abandoned() {
			p.close()
			e.channels.release(p.number)
		}
	}
}

// channelAt returns the channel of a file descriptor of the program, or nil.
func (e *events) channelAt(fd int) *pipe {
	ino, ok := inode(fd)
	for _, p := range e.channels.all() {
		if ok && p.ino == ino {
			return p
		}
	}
	return nil
}

// pipes returns all files of events.
func (e *events) pipes() []*pipe {
	list := e.channels.all()
	if p := e.async.Load(); p != nil {
		list = append(list, p)
	}
	return list
}

// closed says that the program has closed the file with an inode.
func (e *events) closed(inode uint64) {
	for _, p := range e.pipes() {
		if p.ino == inode {
			p.abandon()
		}
	}
}

// happened hands an asynchronous event of the context to the program.
func (e *events) happened(a hca.AsyncEvent) {
	switch {
	case !known(a.Kind):
	case a.QP == nil:
		if p := e.async.Load(); p != nil {
			e.deferred.send(p, record{element: portNumber, kind: uint32(a.Kind), of: new(tally)})
		}
		if a.Kind != ib.EventDeviceFatal {
			return
		}
		for _, p := range e.pipes() { // no event follows: none is to wait for one
			e.deferred.send(p, record{last: true})
		}
	default:
		if o, ok := a.QP.UserData().(*object); ok {
			o.tell(a.Kind)
		}
	}
}

// object is what a program has made that raises asynchronous events.
type object struct {
	events *events
	handle uint32
	user   uint64 // the program's name of it
	raised tally  // asynchronous events
}

// tell hands an asynchronous event to the program. It may be called with any
// lock held but that of the deferred work.
func (o *object) tell(e ib.Event) {
	o.events.deferred.send(o.events.async.Load(), record{element: o.user, kind: uint32(e), of: &o.raised})
}

// reported returns how many asynchronous events of an object, which raises no
// more, the program has read. It gets no others.
func (o *object) reported() uint32 {
	o.events.deferred.run()
	return o.events.async.Load().takeBack(o.user, &o.raised)
}
