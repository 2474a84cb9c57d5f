// Package loopback holds end-to-end tests over real UDP sockets on the loopback
// interface: every operation, IPv4 and IPv6, without and with faults. It has no
// code of its own.
package loopback
