package hca

import (
	"errors"
	"sync"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// rxDatagrams is how many datagrams, or coalesced runs of them, are taken from
// the link at once.
const rxDatagrams = 64

// drainBatches are more than a socket buffer holds of any but tiny packets.
const drainBatches = 64

// intake is the way in of a shard: a goroutine takes one batch from the link,
// locks the shard once, and has the engine handle it.
type intake struct {
	*locked
	out *sender

	mu        sync.Mutex // held from Recv until the batch is handled, so that packets keep their order
	batch     *transport.RxBatch
	portError bool // the link fails to receive; under mu
}

// progress receives what there is on the goroutine of a program that polls, and
// reports whether there was anything. It never waits.
func (in *intake) progress() bool {
	if in.driven != nil {
		return in.driven.poll()
	}
	in.side.polled()
	if in.take() > 0 {
		return true
	}
	if in.forwarded.any.Load() {
		in.lock()
		in.handleForwarded()
		in.out.transmit()
		in.unlock()
		return true
	}
	in.out.transmitIdle()
	return false
}

// take receives one batch for a program that polls. It returns the number of
// packets.
func (in *intake) take() int {
	n, _ := in.receiveAs(false, true)
	if n > 0 && in.side.has(wake.InLink) && in.side.on(wake.Took)&wake.WakeLink != 0 {
		in.link.Wake()
	}
	return n
}

// drain receives all that is there. Traffic that does not pause it follows for
// a while only: the caller has other things to do.
func (in *intake) drain() int {
	total := 0
	for range drainBatches {
		n := in.receive()
		if n == 0 {
			break
		}
		total += n
	}
	return total
}

// receive receives one batch and sends the answers. It returns the number of
// packets.
func (in *intake) receive() int {
	n, _ := in.receiveAs(true, false)
	return n
}

// receiveAs is receive for several callers. With wait it waits for another
// goroutine that receives. With later a few answers may wait for the program's
// next call, where they leave together with what it posts. It reports, too,
// whether a queue pair of the shard has taken any of the packets.
func (in *intake) receiveAs(wait, later bool) (n int, taken bool) {
	if wait {
		in.mu.Lock()
	} else if !in.mu.TryLock() {
		return 0, false
	}
	if n = in.recv(); n == 0 {
		in.mu.Unlock()
		return 0, false
	}
	in.lock()
	r, now := in.handle()
	in.mu.Unlock()
	if later && in.side.has(wake.StandsBy) && r.MayWait() && (!r.Requests || in.eng.DelayAcks(now, engine.AcksAtRequests)) {
		in.out.defers()
	} else {
		if n >= wake.BulkPackets {
			now = 0 // it took a while to handle them
		}
		in.out.transmitFor(now, nil, engine.AcksLeave)
	}
	in.unlock()
	return n, r.Taken
}

// meanwhile takes one batch, and sends no answers: the sender calls it between
// two of its own.
func (in *intake) meanwhile() {
	if !in.mu.TryLock() {
		return
	}
	in.side.polled()
	if in.recv() > 0 {
		in.lock()
		in.handle()
		in.release()
	}
	in.mu.Unlock()
}

// recv takes one batch from the link and returns the number of its packets. The
// caller holds mu and not the shard's lock.
func (in *intake) recv() int {
	n, err := in.link.Recv(in.batch)
	if errors.Is(err, transport.ErrClosed) {
		in.portLost(in.locked) // a program that polls never waits for the link
		return 0
	}
	if err != nil || in.portError {
		in.setPortState(err)
	}
	if err != nil {
		return 0
	}
	return n
}

// setPortState raises an event when the link begins to fail to receive, or
// ceases to. The caller holds mu.
func (in *intake) setPortState(err error) {
	switch failed := err != nil; {
	case failed == in.portError:
		return
	case failed:
		in.events.broadcast(ib.EventPortError)
	default:
		in.events.broadcast(ib.EventPortActive)
	}
	in.portError = !in.portError
}

// handle has the engine handle the batch that recv has taken, after what other
// shards have forwarded. The caller holds mu and the shard's lock.
func (in *intake) handle() (r engine.Ready, now clock.Time) {
	if in.closed {
		return r, 0
	}
	if in.forwarded.any.Load() {
		in.handleForwarded()
	}
	packets := in.batch.Packets()
	if in.batch.Len() >= wake.BulkPackets && in.spin > 1 {
		in.side.changeBulk(wake.Bulk.Came)
	}
	now = in.now()
	r = in.eng.Receive(now, packets, in.batch.Placed()...)
	if r.Requests && !wake.Habit(in.side.habit.Load()).Asked() {
		in.side.changeHabit(wake.Habit.Asks)
	}
	if len(r.Misrouted) > 0 {
		in.forward(r.Misrouted)
	}
	if len(r.Multicast) > 0 {
		in.distribute(r.Multicast)
	}
	in.batch.Reset() // gives back what a burst has taken
	return r, now
}

// handleForwarded has the engine handle what other shards have forwarded. The
// caller holds the shard's lock.
func (in *intake) handleForwarded() {
	packets := in.forwarded.take()
	if len(packets) == 0 {
		return
	}
	if !in.closed {
		in.forward(in.eng.Receive(in.now(), packets).Misrouted)
	}
	in.forwarded.done()
}

// onAlarm runs on a goroutine of its own when the earliest deadline has come.
func (in *intake) onAlarm() {
	in.lock()
	due := !in.closed && in.eng.Due(in.now())
	in.unlock()
	if due {
		// The answer may be there, and not have been received: on a
		// busy machine everything here may have stood still.
		in.drain()
	}
	in.lock()
	if due && !in.closed {
		in.eng.Advance(in.now())
	}
	in.alarm.wentOff() // until now it is not set anew
	if due {
		in.out.transmit()
	}
	in.unlock()
}

// transmitter goes on sending when a caller has done its share, and handles
// what other shards have forwarded.
func (in *intake) transmitter() {
	for {
		select {
		case <-in.forwarded.kick:
			in.lock()
			in.handleForwarded()
			in.out.transmit()
			in.unlock()
		case <-in.done:
			return
		}
	}
}
