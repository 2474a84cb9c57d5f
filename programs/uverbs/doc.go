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
// (errands.go). Everything else is package hca: a client is a context of the
// device.
//
// What the program says is not trusted. It may write anything, into its rings
// too, change them at any moment, and unmap what is registered (memory.go). It
// gets errors. Everything that it has made goes with Close.
//
// The package does not know how a program calls it: programs/adapter does. XRC
// and extended queue pairs of other kinds are not there, as with Soft-RoCE.
package uverbs
