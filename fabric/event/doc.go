// Package event is the clock of a discrete-event simulation: points in time,
// a queue of what is due, randomness by seed, and a digest of what has been.
//
// Whatever can happen has a source: a link that becomes free, a packet that
// arrives, a timer. A source is a small number and has at most one event
// pending. So the queue holds no more entries than there are links and timers,
// however many packets are under way.
//
// The order of events is total, and no goroutine, map, pointer or floating
// point number takes part in it: first by time, then by a hash of time and
// source, then by source. Events of the same picosecond are in an order that
// favours no source. It depends on nothing but the two numbers: two parts of a
// network that do not touch each other run alike, side by side or in turn. So
// the sources can be shared out to several queues, and taken from each up to a
// Bound in that order.
//
// The package does not know what an event means. Package network does.
package event
