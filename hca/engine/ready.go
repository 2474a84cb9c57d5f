package engine

import "github.com/gosoftroce/rocev2/transport"

// Ready is what an input has come to, and what it leaves to the driver. Events,
// and memory that must be fetched, have gone to the Sink.
type Ready struct {
	// What Receive was given.

	Packets  int  // those of runs that were placed included
	Taken    bool // a queue pair has taken one of them
	Requests bool // there were requests
	Urgent   bool // something wants an answer that does not wait

	// What Fill has done beside filling the batch.

	LoopPackets int  // packets that passed inside the engine
	LoopBytes   int  // of these, BTH to ICRC
	Held        bool // an acknowledgement waits, see Engine.DelayAcks

	// What is for others.

	// Misrouted are packets that belong to other shards: a network may
	// coalesce packets to several queue pairs into one buffer, which
	// arrives where the first one belongs. They are valid as long as the
	// batch is, and until the next call of a method of the engine.
	Misrouted []transport.RxPacket

	// Multicast are packets for groups, which were handed to the queue
	// pairs of this shard, and may be for those of others. They are valid
	// as Misrouted is. A driver gives them to those shards, but none that
	// it has got from another shard. With one shard there are none.
	Multicast []transport.RxPacket
}

// MayWait reports whether what Receive was given may stay unanswered until the
// driver's next call, where the answers leave together with what is posted: it
// was little, and nothing wants an urgent answer.
func (r *Ready) MayWait() bool { return r.Packets <= MaxDelayed && !r.Urgent }
