// Package programs measures unmodified programs of a distribution, run by
// "rocev2 run": perftest, OpenMPI, and the calls of libibverbs themselves.
package programs
