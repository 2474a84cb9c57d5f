// Package strangers measures what hosts that are no peers of a program can take
// from it: floods of forged requests for connections, from one address and from
// everywhere, at a rocev2d and at a program of package rdma, and silent TCP
// connections at the HTTP listeners of rocev2d. The victims are processes
// of their own. Beside each flood honest peers connect, one that speaks the
// protocol of package rdma and one that says nothing of itself; how long that
// takes is reported, and how much memory the victim has, also 30 s later.
//
// It needs Linux, and a raw socket. The addresses are those of the loopback
// network, so it runs in a network namespace of its own (cmd/roceattack).
package strangers
