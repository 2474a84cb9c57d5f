// Package traffic says who sends how much to whom, and when: what simulated
// networks carry.
//
// Sizes are distributions of flow sizes as they were published (WebSearch,
// Hadoop, AliStorage). Load has flows of such sizes that arrive as a Poisson
// process. Bursts has incasts that do. Permutation, Incast and AllToAll are
// fixed patterns. Ring, Tree and HalvingDoubling are the steps of an
// all-reduce.
//
// The package is pure. Randomness comes from a Source, and all arithmetic is
// of integers, so a seed gives the same flows on every processor. Times are
// picoseconds.
package traffic
