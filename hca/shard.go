package hca

// The way of a message, from the post to the completion. Each step names its
// functions and their file.
//
//  1. QP.PostSend (qp.go) locks the shard; the engine takes the work request.
//  2. QP.transmit, sender.transmitFor (transmit.go): acknowledgements that wait
//     go along, or wait on.
//  3. sender.pump, sendBatches: the engine fills a batch.
//  4. sender.send unlocks the shard (locked.release, lock.go: the timer is
//     armed, what is to be woken is woken), has the link send, and locks again.
//  5. A program that polls comes by CQ.PollProgress (cq.go) and
//     intake.progress. One that waits, in CQ.Wait or CompChannel.Get
//     (channel.go), comes by parker.park (park.go): as the owner by
//     parkAsOwner, or it sleeps beside the owner. Where no program is the owner
//     the receiver is (receiver.go). Package wake decides which.
//  6. intake.receiveAs, recv (receive.go): one batch is taken from the link.
//  7. intake.handle, with the shard locked: the engine handles the packets, and
//     CQ.Complete (cq.go) gets the completions. It lists an armed queue in its
//     channel (CQ.notify), and wakes a goroutine that sleeps beside the owner.
//  8. sender.transmitFor: the acknowledgement is sent as from step 2 on, or is
//     left for the program's next call (sender.defers).
//  9. locked.unlock: a program that sleeps in the link is woken, handlers are
//     called.
// 10. CompChannel.Get returns the queue, CQ.Poll takes the completion.
//
// Steps 5 to 8 are the peer's for the packet, and then this side's for its
// acknowledgement. With a Driver (driver.go) steps 3 to 6 are Driven.Pull and
// Driven.Receive, and what waits is woken by parker.wakeOne.

import (
	"sync"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport"
)

// shard is a part of a device that works on its own: a link, the engine that
// its packets are for, and the engine's timer.
type shard struct {
	locked
	in       intake
	out      sender
	receiver receiver

	goroutines sync.WaitGroup
}

// newShard makes the shard for a link. c is its engine's.
func newShard(sh *shared, link transport.Link, c engine.Config) *shard {
	s := &shard{locked: locked{shared: sh, link: link, side: newSide(), done: make(chan struct{})}}
	part := &s.locked
	s.waker = linkWaker{all: &sh.wakers, link: link}
	sh.wakers.list = append(sh.wakers.list, &s.waker)
	sh.parts = append(sh.parts, part)
	s.forwarded.kick = make(chan struct{}, 1)
	s.in = intake{locked: part, out: &s.out, batch: transport.NewRxBatch(rxDatagrams)}
	s.out = sender{locked: part, meanwhile: s.in.meanwhile, pacer: transport.PacerOf(link)}
	if s.out.pacer != nil {
		s.out.pacer.OnRoom(s.forwarded.tell)
	}
	s.receiver = receiver{locked: part, in: &s.in}
	if l, ok := link.(transport.PlacingLink); ok {
		l.SetPlacer(&placer{s: part})
	}
	c.Sink = s
	s.eng = engine.New(c)
	return s
}

// start starts the goroutines of the shard.
func (s *shard) start() {
	s.alarm.init(s.in.onAlarm)
	s.goroutines.Go(s.receiver.run)
	s.goroutines.Go(s.in.transmitter)
}

// close ends the shard's goroutines and its link.
func (s *shard) close() error {
	s.lock()
	sent := s.out.sendFinal()
	s.unlock()
	s.out.await(sent)
	s.lock()
	s.closed = true
	s.unlock()
	s.alarm.stop()
	close(s.done)
	err := s.link.Close()
	s.goroutines.Wait()
	return err
}

// user is a queue pair as a program knows it.
type user interface{ context() *Context }

// Event implements engine.Sink.
func (s *shard) Event(q *engine.QP, k ib.Event) {
	if of, ok := q.User.(*QP); ok && of.checked != nil {
		of.checked.happened(k)
	}
	if user, ok := q.User.(user); ok {
		user.context().events.push(event{k, user})
	}
}

// Fetch implements engine.Sink.
func (s *shard) Fetch(q *engine.QP, f qp.Fetch) {
	if user, ok := q.User.(user); ok {
		s.pager.add(pageJob{f, user.context(), fetching{s, q}})
	}
}

// fetching is a queue pair of a shard that waits for memory.
type fetching struct {
	shard *shard
	q     *engine.QP
}

// fetched has the queue pair go on. The caller holds no lock.
func (w fetching) fetched(f qp.Fetch) {
	s := w.shard
	s.lock()
	if !s.closed && s.eng.Lookup(w.q.QPN()) == w.q {
		s.eng.Fetched(s.now(), w.q, f)
		s.out.transmit()
	}
	s.unlock()
}
