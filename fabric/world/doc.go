// Package world runs programs on verbs (package verbs) on the hosts of a
// simulated network (package fabric/network), in virtual time. The programs are
// those that run over sockets, unchanged; so are the adapters below them,
// package hca and all that it stands on. Payloads are real bytes.
//
//	w, err := world.New(world.Config{Network: …})
//	for rank := range 128 {
//		w.Go(rank, func(ctx context.Context, dev *verbs.Device) error {
//			…
//			n, err := cq.Wait(ctx, wc[:]) // the others go on, and so does time
//			…
//		})
//	}
//	err = w.Run()
//
// # Time and order
//
// Each program is a coroutine, and one runs at any moment. It takes no time:
// time goes on when it waits, for a completion, a notification, an event, a
// value of a Box, or by Sleep. Then the network handles its next event. A
// program that waits for a packet goes on at the time at which the last bit of
// it has arrived. So a run depends on the programs, the network and the seeds
// alone: Digest is the same each time, on every machine, with any number of
// processors.
//
// A poll that finds nothing lasts until something comes for the device, at most
// a microsecond. [verbs.Device.Now] is the time of the world.
//
// # What programs must not do
//
// A program waits by the verbs, by what this package offers, and by package
// task; never in another way for another program. It starts no goroutine that
// touches a device: if such a goroutine waits, that ends the process. A
// [context.WithTimeout] or a [time.Sleep] counts real time: WithTimeout and
// Sleep of the World count virtual time. A program that waits for a channel
// stops the world for ever, and Run cannot tell: SIGQUIT has Go print the line.
//
// A program that needs goroutines, timers or the time, and is to run over
// sockets, too, takes them from the [task.Runner] of its device, which
// verbs.HCA(dev).Tasks() returns. So do the tests of perftest (package
// programs/interop/perftest, which `rocev2 perf` runs) and the ping-pongs
// (programs/interop/pingpong), and connections by package cm, where a program
// waits for the end by Conn.Wait and not for Conn.Done.
//
// What does not run here: [verbs.CQ.Chan], the IDs and event channels of
// package cm, and packages rdma and rdmanet with all that stands on a net.Conn
// over them. They have goroutines, channels and timers for each connection, and
// so have the programs above them (net/http). They run in package worldtest,
// which has goroutines in virtual time, for tests.
//
// A program that looks at its memory until a peer has written there stops the
// time. It polls a completion queue or sleeps between two looks. Memory may be
// a mapped file, but which of its pages are present is the host's business, so
// such a run is not repeatable.
//
// # What programs tell each other
//
// Over sockets, programs exchange addresses by TCP before they are connected.
// Here hosts have a second network for that, in which bytes take no time:
// World.Listen and World.Dial, whose connections are a net.Conn. Their
// deadlines are times of [task.Runner.Now]. A Box is simpler, for programs
// written for a world.
//
// # The network
//
// Host i has the address Addr(i), and one device on its first port, which pulls
// one packet at a time, by class, when the cable is free. Cables and switches
// change no bits: the ICRC is neither computed nor checked. There is no
// multicast.
//
// A World is not safe for concurrent use.
package world
