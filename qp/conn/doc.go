// Package conn has what the two halves of a reliable connection share: the
// identity of the connection, its attributes, memory and counters, and how a
// half ends it.
//
// The halves, packages requester and responder, do not know each other. What
// one must let the other know goes through a Conn: the state, the round trip
// time that the requester measures, and the end. A half that ends the
// connection calls Fail, which sets the state to ERR and says why; package qp
// then has both halves flush their queues before its own method returns.
//
// Receives is not shared by the halves, but by the receiving halves of all
// services.
//
// It has no rule of the protocol, and no place for what only one half needs.
package conn
