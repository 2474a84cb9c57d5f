// Package plugin offers the ports of a node's rocev2d to Kubernetes, by the
// device plugin API v1beta1 of the kubelet. A pod that asks for the resource
// gets the directory of the daemon and the preload library, both read-only, and
// the two variables of "rocev2 run": programs of libibverbs and librdmacm in it
// see the devices of the daemon.
//
// A port of the resource is a place to run on the node's devices, not a device
// of its own: the daemon shares its UDP port among all of them, process by
// process. So the number of ports bounds pods, and the daemon's configuration
// bounds processes.
package plugin
