// Package rstream speaks with rstream of librdmacm, in both roles: streams over
// RDMA (rsockets), whose latency and bandwidth it measures.
//
// A run is a series of tests. A test begins with 16 bytes each way. Then the
// client sends a number of transfers of a size, and the server as many back,
// again and again. Without a size, a count and a number of iterations there are
// two series, each over a connection of its own: one of latency, with one
// transfer at a time, and one of bandwidth, with all transfers in one go. The
// two sides negotiate nothing: start them with the same flags.
//
// The tests have no header. So a server without end tells the two connections
// of a client apart by its address: the second that follows a complete first
// one is for bandwidth.
package rstream
