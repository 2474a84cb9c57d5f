// Package topology describes networks as plain values: which nodes there are,
// which cables join them, and which ways packets take.
//
// A Graph has hosts and switches. Builders make the usual ones: Pair, Star,
// LeafSpine, FatTree, HPCC, Ring and Rails. Join and a Builder make any other,
// package topofile those of files. All return an error that says which number
// is out of its range, or that there would be more than MaxNodes, MaxSwitches
// or MaxLinks. A host with several links has a switch of its own, see
// Graph.Bond. Rates are in bits per second, delays in picoseconds, buffers in
// bytes.
//
// Tables say by which ports a switch may send a packet for a host. Shortest
// has all ways of least hops, as ECMP uses them. UpDown has ways that climb
// first and then descend. Such ways never make a cycle of buffers that wait
// for each other, so switches that pause their neighbours (PFC) cannot come
// to a deadlock by them. Both take the links that have failed. After a
// failure one asks for new Tables, and gives them to the network when its
// switches would have learned.
//
// Dependencies holds which buffer waits for which, for any routes, and finds
// a cycle where there is one.
//
// A Profile is what is known of a kind of switch as it is sold: buffers,
// thresholds and classes, with the sources of the numbers. Graph.Network makes
// a configuration for package network of a Graph, a Profile and routes.
//
// The package is pure: no goroutine, clock, float or order of a map decides
// anything, so equal calls give equal results on every system. It
// moves no packets; package network does.
package topology
