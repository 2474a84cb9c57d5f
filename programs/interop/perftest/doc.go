// Package perftest speaks the protocol of the perftest programs, version 6.06
// (Debian 4.5), as server and as client: ib_send_bw, ib_write_bw, ib_read_bw,
// ib_atomic_bw, ib_send_lat, ib_write_lat, ib_read_lat and ib_atomic_lat. The
// two sides exchange version, page size, cache line size and path MTU, and then
// one address message for each queue pair, several times. The originals do not
// tell each other what test they run: both need the same test, size,
// iterations, duration, direction and number of queue pairs. Where these
// differ, one side waits for something that never comes, and the run ends with
// an error after Config.IdleTimeout or Config.HandshakeTimeout. Two sides of
// this software recognize each other by a mark after the version, where the
// originals have zeros that they do not read. They compare what they run, and
// the error names the difference. Serve waits for a client that sends its first
// address; other clients do not end it. Run takes a connection that is open
// already.
//
// In the bandwidth tests other than SEND, and in READ and atomic latency, the
// server only answers; it reports the client's figures. Config.Service chooses
// UC, UD or XRC in place of RC, and Config.CM what the connection manager is
// for (-R and -z of the originals). There is no dual port.
package perftest
