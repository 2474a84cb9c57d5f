// Package ib has the plain values of the verbs: work requests, completions and
// their statuses, operations, queue pair attributes and states, address
// vectors, access rights, keys, events and limits. Each is defined here and
// nowhere else, with the numbers of libibverbs where it has them.
//
// The package has values only: it holds no state and does nothing, but for an
// AddressHandle, which has its vector and passes changes on to its Keeper.
// Programs use package verbs, which has what they need of it under the same
// names. Its documentation of them is generated from that here: go generate
// ./verbs.
package ib
