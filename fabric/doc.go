// Package fabric is a network inside the process: a switch whose ports are
// transport links. Devices talk through it as they do over sockets, with the
// same bytes: packets are copied, sealed by the sender and checked by the
// receiver, so that what the network corrupts is caught.
//
// The switch forwards what is sent to a multicast group to every port that has
// joined the group, the sender's own included.
//
// A port's cable has a rate and a delay, and may lose, duplicate, corrupt or
// reorder packets by seed. The switch forwards by destination address through
// bounded queues with tail drop and ECN marking.
//
//	Send ──▶ uplink: Rate, Send blocks ──▶ switch: address lookup
//	     ──▶ egress queue: loss …, tail drop, ECN
//	     ──▶ downlink: Rate, Delay ──▶ Recv
//
// A port can change while packets are under way: SetLoss, SetConfig, Cut and
// Plug. Package verbs/verbstest has connected devices on such a network for the
// tests of programs. Everything waits on channels and timers of package time.
// So a network made inside a testing/synctest bubble runs in virtual time,
// where delays and rates are exact. In real time they are as coarse as the
// system's timers. The network has no goroutines of its own.
//
// The package does not model Ethernet, ARP, routing, IGMP, MLD or priority
// pause, and every port listens on the RoCEv2 port only.
package fabric
