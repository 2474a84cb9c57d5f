// Package uverbs is the kernel's side of libibverbs, for programs that use the
// distribution's libraries. Their queues are rings in memory that both sides
// have mapped: Queues, SharedRecvQueue and CompQueue. Everything else is
// package hca.
//
// A program is not trusted. It may write anything into its rings, and change
// them at any moment. It gets errors, and nobody else notices.
package uverbs
