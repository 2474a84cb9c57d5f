// Package traffic says which hosts send how much to which, and when: what
// simulated networks carry.
//
// Sizes are distributions of flow sizes as they were published (WebSearch,
// Hadoop, AliStorage). Load has flows of such sizes that arrive as a Poisson
// process. Bursts has incasts that do. Permutation, Incast and AllToAll are
// fixed patterns. Ring, Tree, HalvingDoubling and Hierarchical are the steps of
// an all-reduce; AllGather, ReduceScatter, Broadcast, Reduce, Pairwise and
// Barrier those of other collectives.
//
// The package is pure. Randomness comes from a Source, and all arithmetic is
// of integers, so a seed gives the same flows on every processor. Times are
// picoseconds, sizes bytes of payload, and hosts and ranks are numbered from 0.
//
// There are 2 to 2^20 hosts, 1 to 2^20 ranks, and a flow or a vector has 1 to
// 2^40 bytes. An error says which number is out of its range, and the range.
package traffic
