// Package replay makes a scenario of package lab from a capture: which host
// sent how much to which one and when, which packets were lost and which came
// marked. It is played in virtual time, and then again with another setting:
// what would this congestion control, or that recovery, have made of it.
//
// A capture shows one place, and no network. So all hosts are at one switch,
// with cables of a rate and a delay that the capture suggests; what it does not
// tell has the default. Comments of the scenario say what was guessed, and what
// was left out: other operations than WRITE, SEND and READ, and other services
// than RC.
package replay
