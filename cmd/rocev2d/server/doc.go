// Package server is the daemon rocev2d without its command line: RoCEv2 devices
// as a service. It opens the devices of a configuration, exports memory to
// clients, answers the field's own tools, and tells what it does: over HTTP to
// people (a page), to Prometheus, and to programs (JSON).
//
// Package config below it has the configuration, and package web the page.
//
// # Access and limits
//
// The admin listener is for the operator. Without a token it serves loopback
// addresses only. It checks the Host header, so that a page in a browser that
// has a name for this host reads nothing, and takes a POST only with a content
// type that no foreign page can send unasked. Everything that a client of the
// RoCE side can cause is bounded: connections, clients of the targets, records
// of peers and errors, the capture.
package server
