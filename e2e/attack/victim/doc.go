// Package victim starts processes that are attacked, and looks at them from
// outside: whether they live, what memory and files they have, and what a
// rocev2d says of itself.
//
// It works on Linux. A daemon's ports are of its address, so it runs in a
// network namespace of its own (cmd/roceattack).
package victim
