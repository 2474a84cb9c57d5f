// Package owner shares the RoCEv2 port of an address among processes. Its
// [Owner] binds many sockets to the port, the slots, in one SO_REUSEPORT group.
// The kernel gives a packet to the slot that is its destination QPN modulo
// their number. The owner keeps every socket open, so a QPN's slot never
// changes, and leases copies of them to processes that ask on a Unix socket
// (package transport/lease is their side). A leaseholder receives and sends on
// its own socket: the owner does nothing for a packet.
//
// All users of the port are leaseholders, a device in the owner's own process
// too. The owner itself keeps slot 1, where packets for queue pair 1 arrive.
// What connection managers send passes there: the [Owner] is the switch between
// the network and the connection managers of the leaseholders, and answers what
// belongs to none of them. See package transport/owner/relay.
//
// When a lease ends, because the process closes it, ends or is killed, the
// owner has the kernel drop what comes to its slots, disconnects its peers, and
// rests the slots until nothing has come for 2 s, or for 60 s at most. So old
// packets do not meet new queue pairs. Slots of a device that has made no queue
// pair and sent nothing are free at once.
//
// When the owner ends, each leaseholder's device fails (IBTA 11.6.3.1) within a
// second, and its sockets are closed, so that a new owner can bind the port.
//
// It works on Linux. A process that may lease can send packets in the name of
// each other leaseholder, and can keep a copy of a socket. So only the owner's
// user may, unless [Config.Allow] says otherwise.
package owner
