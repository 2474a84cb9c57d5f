// Package doctor finds out what stops people who use RoCEv2 on a host, and on
// the way to a peer: a taken port, an address without a GID, an interface that
// carries too little, a firewall, small buffers, a peer that does not answer.
// Each finding says what was seen, what it means, and what to do.
//
// It changes nothing. What it sends to a peer is little: management datagrams
// (package observe/doctor/ping) and datagrams that every receiver of RoCEv2
// drops (package observe/doctor/probe). It sends no bursts: a rate is measured
// only against a server that waits for that.
//
// Most checks read /proc and /sys, so on other systems than Linux they say that
// they were not made.
package doctor
