// Package topofile reads networks from the files of other simulators: the
// topology.txt that the ns-3 of the HPCC paper has (format NS3; repository
// alibaba-edu/High-Precision-Congestion-Control), and the .topo of htsim's fat
// trees (format HTSim; repository Broadcom/csg-htsim).
//
// A file may come from an untrusted source. What it asks for is bounded by
// topology.MaxNodes, MaxSwitches and MaxLinks, whatever numbers it has. Errors
// name the line. A host with several links has a bond, see topology.Graph.Bond.
//
// A file of ns-3 begins with the numbers of nodes, switches and links. Then
// come the switches, which are any of the nodes, and a line for each link: two
// nodes, rate, delay, and the share of packets that it loses. Hosts and
// switches keep their order, and so do links. Graph.Named has the nodes by
// their numbers in the file.
//
// A file of htsim says what a fat tree of two or three tiers is like. Hosts are
// numbered as htsim numbers them. Switches are first those of tier 0, then of
// tier 1, then of tier 2. A cable has the latency of the file, and half that of
// the switch at each of its ends. So a packet that passes a switch takes as
// long as in htsim. The lengths of queues, Queue_Up and Queue_Down, are read
// and not used: a profile of switches has a buffer that all ports share.
//
// The package is pure.
package topofile
