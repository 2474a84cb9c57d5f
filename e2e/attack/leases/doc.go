// Package leases attacks the owner of a port that processes share, a rocev2d:
// by its Unix socket, by forged packets, and by leaseholders that are hostile,
// stop or die. Meanwhile two other leaseholders exchange messages, each byte of
// which is checked, and a third one dials. What counts is not the time that
// something takes: the traffic goes on, the number of packets that are sent for
// it is bounded, every dial ends, and the owner then has the leases, files and
// threads that it had before.
//
// It needs Linux and a raw socket. The addresses are those of the loopback
// network, so it runs in a network namespace of its own (cmd/roceattack).
package leases
