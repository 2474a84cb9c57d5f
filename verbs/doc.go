// Package verbs is what programs use: RDMA verbs in Go over a software RoCEv2
// device, in an ordinary process, without privileges or a kernel module.
//
//	dev, err := verbs.Open("127.0.0.1") // a device on one local address
//	pd, err := dev.AllocPD()
//	mr, err := pd.RegisterMemory(buf, verbs.LocalWrite|verbs.RemoteWrite)
//	cq, err := dev.CreateCQ(256)
//	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
//	err = qp.Connect(ctx, peer) // peer is the other side's qp.Endpoint()
//	err = qp.PostSend(verbs.SendWR{
//		ID: 1, Opcode: verbs.OpWrite, Signaled: true,
//		SGList: []verbs.SGE{mr.Slice(0, 4096)}, Remote: remote.At(0),
//	})
//	n, err := cq.Wait(ctx, wc[:])
//
// How the two sides learn of each other's Endpoint and RemoteMemory is up to
// the program: both are plain values.
//
// Programs need no other package of this module, except for a link of another
// kind than a UDP socket ([OpenLink]).
//
// Requests, completions and other plain values are types of package ib, with
// other names for them here: go doc verbs.SendWR shows one whole, and go doc
// ib.SendWR.Fence a field or a method of it.
//
// # Memory
//
// A region's bytes belong to the device from the post of a work request until
// its completion has been polled, and remote writes may land in it at any time
// while it is registered for them. The completion is the happens-before edge.
// To watch a flag in memory, use [MR.Load64].
//
// A peer gets a part of a region for a while by a memory window ([MW]), bound
// and ended by work requests. A region itself is registered by a work request
// with [FastMR]. [MR.Reregister] and [MR.Share] change and double a region. The
// [OnDemand] right, and an [ImplicitMR], are for memory larger than what is
// used of it.
//
// # Services
//
// QPConfig.Type says what a queue pair is: RC, which repeats what is lost; UC,
// which does not; UD, whose datagrams go to any AddressHandle, or to a
// multicast group; GSI, for management datagrams; XRCInitiator and XRCTarget,
// where a request names the shared receive queue of the peer that it is for.
// Queue pairs of all types but XRCInitiator can take their receives from an
// SRQ.
//
// # One device
//
// Two queue pairs of one device may be connected to each other, and one to
// itself. Their packets take the link like all others, unless [Config.Loopback]
// lets them pass inside the device.
//
// # Errors
//
// What a program asks for wrongly is refused at once. errors.Is tells the cause
// ([ErrQueueFull], [ErrRange], [ErrClosed] …), and errors.As gives the details
// ([PostError], [ModifyError], [RangeError], [OpenError]).
//
// What fails later is a completion without success. WC.Err makes a [WCError] of
// it. errors.Is and errors.As find its Status, and its Fault where an access to
// local memory failed. The queue pair is in ERR then. Where a send of UC or UD
// failed it is in SQE: it receives on. [Device.AsyncEvent] tells of what no
// completion reports.
//
// Only a request that is not acknowledged shows that the peer is gone. A
// program that waits for a receive alone learns nothing: it bounds the wait by
// the context.
//
// # Closing
//
// Everything has a Close that may be called more than once, in any order and
// from any goroutine. Closing a Device closes all that was made on it. What is
// closed takes no memory, unread events and completions included, also while
// the program still refers to it.
//
// What a program has received is acknowledged before the Close of its queue
// pair or device returns. A process that ends without Close may take with it
// acknowledgements of the last millisecond: the program has received the data,
// and the sender sees RETRY_EXC_ERR.
//
// # Tests
//
// Tests of programs find connected devices, loss and cables to cut in package
// verbs/verbstest.
//
// # Not here
//
// The connection manager: package rdma/cm.
package verbs

//go:generate go run ../internal/values
