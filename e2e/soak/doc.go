// Command soak keeps connections of package rdma busy for a long time, on a
// network that loses packets, while it kills, stops and restarts the processes
// at their ends at random. It fails if something that was acknowledged is lost,
// if a connection does not come back, or if memory or goroutines grow.
//
//	cd e2e && go run ./soak -for 1h
//
// Two servers export a journal and counters, both in mapped files, and echo
// messages. The first server is stopped at times, the second one is killed too.
// The same holds for the clients: the first is only stopped. What is judged for
// growth are the two processes that live through all of it.
//
// With -shared all processes are on one address, whose port rocev2d owns, and
// six of them are rping, which checks what comes back. The owner is stopped,
// and killed: then every process must hear of that, and all begin again.
//
// A client writes what it knows to be acknowledged into a file of its own. When
// it was killed, the next one looks in the memory of the server for all of it.
//
//   - A record of the journal whose WRITE has completed is there, whole. (The
//     next record goes to the other of two places.)
//   - A counter is at least the number of atomics that have completed, and at
//     most the number that were posted.
//   - A message comes back as it was sent, and in order.
package main
