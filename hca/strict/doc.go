// Package strict has the rules of strict mode: what hardware adapters refuse,
// lose or let hang, and a software adapter would let pass. A device that has a
// Checker asks it at the few places where a program can break a rule, and
// records there what it has found. A device without one has a nil pointer,
// which is all that it looks at.
//
//   - rules.go: the table of rules. docs/strict.md is made of it.
//   - settings.go: which rules are on, from text.
//   - profiles.go: the limits of adapters as they are sold.
//   - checker.go: what was found: one entry for each rule, so its memory is
//     bounded whatever a program does.
//   - slots.go, queue.go: the slots of a send queue and a receive queue, as the
//     library of an adapter counts them.
//   - report.go: findings as lines of JSON, for the report of another process.
//
// It does not look at packets, and decides nothing of the protocol.
package strict
