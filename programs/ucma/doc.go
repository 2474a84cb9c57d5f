//go:build linux

// Package ucma serves librdmacm: it does what the kernel does for the file
// /dev/infiniband/rdma_cm, over the connection manager of package cm. A program
// with the distribution's librdmacm so makes connections, and its peers may be
// this software, Linux, or an adapter.
//
// A Client is one open file of a program. It joins the table of its IDs and
// groups (ident.go) and the queue of its events (queue.go) with the connection
// manager. Command takes what the program wrote
// to it, and gives what the kernel would have answered, errors too. Ready is
// readable while events wait.
//
// The queue pair is the program's own, made through verbs: a connection has its
// number only. What the connection manager knows of a peer and no command can
// carry, Known tells the code that modifies the queue pair.
//
// Programs are not trusted. An address of the family IB is refused, after which
// librdmacm uses the commands for IP. Routes are the system's, so resolving one
// takes no time.
package ucma
