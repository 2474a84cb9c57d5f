// Package fault wraps a link and does to its packets what bad networks do: it
// drops, duplicates, reorders, corrupts and delays them. Rules choose the
// packets (by opcode, PSN, direction, count or any function), or chance does,
// with a seed.
//
// A rule is a value of Rule, or a text in the syntax of Grammar, such as
// "drop=1%" or "delay:by=5ms:dir=in", that ParseRule reads: for command lines
// and configuration files. The same seed, rules and sequence of packets in a
// direction hit the same packets. How the two directions interleave does not
// matter.
//
// Corruption on receive flips a bit and marks the packet; corruption on
// transmit spoils the ICRC, which any receiver notices alike. Delayed packets
// wait on timers of package time, so a link inside a testing/synctest bubble
// stays in virtual time.
//
// The wrapper is meant for tests and for measurements of behaviour under loss.
// Where packets are only dropped it copies nothing; other actions copy the
// batch. It does not limit rates.
package fault
