// Package uverbs is the kernel's side of libibverbs, for programs that use the
// distribution's libraries: what they write to the file of a device comes here
// as bytes, and is answered as the kernel's driver of Soft-RoCE answers it.
//
// A Device stands for a file of devices, such as uverbs0, and a Client for an
// open file. Client.Command takes what the program gave to write(2). The queues
// of a client are rings in memory that both sides have mapped, a memfd: Queues,
// SharedRecvQueue and CompQueue. Who waits for the device's link looks where
// programs have rung (room.go), or a goroutine for each client where the link
// does not wait for that (bells.go); one writes events to pipes (pipe.go).
// Everything else is package hca: a client is a context of the device.
//
// A program is not trusted. It may write anything, into its rings too, and
// change them at any moment. It gets errors, and nobody else notices.
// Everything that it has made goes with Close.
//
// The package does not know how programs are reached: package programs does.
// XRC and extended queue pairs of other kinds are not there, as with Soft-RoCE.
package uverbs
