// Package fault wraps a link and does to its packets what bad networks do:
// drop, duplicate, reorder, corrupt and delay, chosen by rule (opcode, PSN,
// direction, count, any function) or at random with a seed.
//
// A rule is a value of Rule, or a text in the syntax of Grammar, such as
// "drop=1%" or "delay:by=5ms:dir=in", that ParseRule reads: for command lines
// and configuration files.
//
// With the same seed, rules and sequence of packets in a direction the same
// packets are hit; how the two directions interleave does not matter.
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
