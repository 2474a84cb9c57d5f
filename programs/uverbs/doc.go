// Package uverbs is the kernel's side of libibverbs, for programs that use the
// distribution's libraries: what they write to the file of a device comes here
// as bytes, and is answered as the kernel's driver of Soft-RoCE answers it.
//
// The program and its memory are in this process.
//
// A Device stands for a file of devices, such as uverbs0, and a Client for an
// open file. Client.Command takes what the program gave to write(2), and
// Client.Post is its doorbell: it posts and sends on the caller's thread. The
// queues of a client are rings in memory that the program's library has mapped,
// too, a memfd: Queues, SharedRecvQueue and CompQueue. Events go through pipes
// (pipe.go); the goroutine that gives up the lock of the device writes them
// (deferred.go). Everything else is package hca: a client is a context of the
// device.
//
// # The way of a command
//
//  1. Command (command.go) posts what doorbells have left in the rings, takes
//     the header off, and finds the method in a table.
//  2. The method is of one part of the client, with tables of its own:
//     queries, events, protection, addressHandles, compQueues, sharedQueues or
//     queuePairs (cmd….go, events.go). It decodes the request and answers it.
//  3. What completes or happens meanwhile is deferred (deferred.go) until no
//     lock of the device is held: then it is written to the pipes.
//
// # The way of a request
//
//  1. The program writes it into the ring and rings: Client.Post, or the
//     doorbell is left out (doorbell.go) and the next call posts it.
//  2. Queues.Serve (queues.go) has the send queue (sendqueue.go) take requests
//     from the ring, and post them to the queue pair of package hca.
//  3. The completion comes to the send queue or the receive queue
//     (recvqueue.go), which gives the element back to the program, and puts
//     the completion into the ring of the CompQueue (compqueue.go).
//  4. If the program has armed that, an event is deferred and written.
//
// What the program says is not trusted. It may write anything, into its rings
// too, change them at any moment, and unmap what is registered (memory.go). It
// gets errors. Everything that it has made goes with Close.
//
// The package does not know how a program calls it: programs/adapter does. XRC
// and extended queue pairs of other kinds are not there, as with Soft-RoCE.
package uverbs
