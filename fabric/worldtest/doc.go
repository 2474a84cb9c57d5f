// Package worldtest runs whole programs on the hosts of a simulated network
// (package fabric/network) in the virtual time of a test: what has goroutines,
// channels, timers and deadlines of its own, such as packages rdma and rdmanet,
// net/http over them, and all of rdma/cm. The programs are those that run over
// sockets, unchanged; payloads are real bytes.
//
//	func TestPrograms(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			w := worldtest.New(t, worldtest.Config{Network: …})
//			lc := rdma.ListenConfig{Device: w.Device(0)}
//			l, err := lc.Listen(t.Context(), ":7471")
//			…
//			d := rdma.Dialer{Device: w.Device(63)}
//			c, err := d.Dial(t.Context(), l.Addr().String())
//			…
//			w.SetCable(64, false)
//			time.Sleep(10 * time.Second) // takes none
//			…
//		})
//	}
//
// # Time
//
// The bubble of testing/synctest has the time: package time counts virtual time
// in it, which goes on when all of its goroutines wait. The network is played
// up to that time, by a timer, at the time of each of its events. So programs
// take no time, and cables and switches take what they take. A program sees
// what arrives at the next full nanosecond; what it sends leaves a nanosecond
// after that, by the rate of its cable.
//
// Package fabric/world, beside this one, has coroutines in the place of
// goroutines: its runs are repeatable bit by bit. See docs/fabric-programs.md.
//
// # Repeatable
//
// Random numbers of devices are those of Config.Seed, and what several hosts
// send in one nanosecond is taken in the order of their numbers. What
// goroutines of one host do in the same nanosecond, they do in the order of
// Go's scheduler: of two calls that post, either may be the first. A select
// with several ways open takes any. So runs of a test differ by little: Digest
// is the same where one goroutine of a host at a time does something, and else
// virtual times differ by what a packet takes on a cable, or by more where the
// difference decides which packet is lost. A test judges by bounds.
//
// # What stops the time
//
// The time stands still while a goroutine of the bubble runs or waits for what
// synctest does not know to be virtual:
//
//   - A lock (sync.Mutex) that another goroutine holds while it waits for the
//     network. The calls of this module hold none. Programs may: net/rpc and
//     crypto/tls write under a lock, so a second writer stops the time while
//     the first one waits for room. Close of rdmanet.Conn does not wait here,
//     because net/http calls it under locks.
//   - A loop that polls: of a completion queue, or of memory until a peer has
//     written there. It waits by the verbs, or sleeps between two looks.
//   - A file, a pipe or a socket, and channels that were made outside of the
//     bubble.
//
// Then the test hangs, until go test -timeout prints all goroutines. The one to
// look for is in "sync.Mutex.Lock" or "runnable", not in "(durable)".
//
// Programs that wait for each other for ever are another matter: synctest ends
// the test by a panic, with all goroutines. Where connections look after their
// peers from time to time that never happens, and Config.Limit ends the test.
//
// # The network
//
// Host i has the address Addr(i), and one device on its first port. Packets
// wait for the cable by class, those that are paused (PFC) beside others that
// are not. Cables and switches change no bits: the ICRC is neither computed nor
// checked. There is no multicast, and the memory that peers of one host share
// (Config.SharedMemory of verbs) is not used.
package worldtest
