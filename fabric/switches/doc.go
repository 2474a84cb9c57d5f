// Package switches has programs for the switches of a simulated network
// (network.Program): what newer switches do beyond ECMP, RED and PFC. They are
// written on the public hooks of package network, and are examples of how to
// write one's own.
//
//   - INT: in-band telemetry, as HPCC needs it
//   - Trim: a full queue cuts the payload off, and the header goes on
//   - DRILL and Weighted: each packet by the queues of this switch
//   - Credit: link-level flow control by absolute credits, instead of pauses
//   - ECMP, Flowlet, LeastQueue, Spray and RED: what package network has built
//     in, once more. Tests play both: the results are equal bit by bit.
//
// Join has several of them at one switch.
//
// The package does not say what hosts do with hops and headers: that is for
// their adapters.
package switches
