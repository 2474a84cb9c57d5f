// Package conformance is a test kit for those who build adapters: it finds out
// whether a RoCEv2 peer keeps the rules of the standard. The peer may be an
// adapter, an FPGA, a simulator, a kernel, or this software.
//
//	┌───────── this side ─────────┐         ┌───────── the peer ──────────┐
//	│ rules ── stage ── control ──┼── TCP ──┼─ target: makes a queue pair │
//	│             └──── wire ─────┼── 4791 ─┼─ what is tested             │
//	└─────────────────────────────┘         └─────────────────────────────┘
//
// Each rule (package rules) has a script, which is a few lines on a stage
// (package stage): it asks the target for a fresh queue pair, sends packets,
// and says what must come. Requests and responses are made by package rocev2
// alone, not by a queue pair, so that a script can send what no sane stack
// sends: a wrong PSN, a bad ICRC, a length that does not fit.
//
// What is tested needs a target beside it: a program that makes queue pairs,
// posts work requests and shows memory, as the lines of text of stage.Conn ask
// it. Package observe/conformance/target is one on package verbs, and [Helper]
// is the source of one for libibverbs.
//
// Every wait is bounded, and so is what is kept of a peer that answers garbage,
// floods, or never answers. A rule whose script cannot be run is reported as
// not tested, with the reason.
//
// The package does not test connection management, rates, fairness or
// congestion control. Of the IP header it sets traffic class and hop limit.
package conformance
