//go:build !linux

package attack

// byPrograms are attacks of programs of libibverbs, which are served on Linux.
var byPrograms []Attack
