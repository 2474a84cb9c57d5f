package qp

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// A queue pair calls its halves by these interfaces, except for what takes a
// pointer on the way of every packet: through an interface what it points to
// would have to be allocated. Those methods are called by the type of the half.

// sendHalf carries out send requests. That of the reliable services is
// requester.Requester.
type sendHalf interface {
	HandleTimeout(now clock.Time)
	Deadline() (clock.Time, bool)

	ReadyToReceive()
	ReadyToSend(first rocev2.PSN)
	Configure(mask ib.AttrMask) // the attributes of mask have changed
	NotifyDrained(on bool)      // raise EventSQDrained when drained
	Drained() bool
	Flush()
	Reset()

	NextPSN() rocev2.PSN
	NextCost() int

	Fetch() (Fetch, bool)
	Fetched(now clock.Time, need conn.Need)
}

// recvHalf takes messages. That of the reliable services is
// responder.Responder.
type recvHalf interface {
	Owes() conn.Owed
	HandleTimeout(now clock.Time)
	Deadline() (clock.Time, bool)

	ReadyToReceive(first rocev2.PSN)
	Flush(why conn.End)
	Reset()

	ExpectedPSN() rocev2.PSN

	Fetch() (Fetch, bool)
	Fetched(need conn.Need)
}
