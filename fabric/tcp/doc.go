// Package tcp is TCP on simulated hosts, beside their adapters (package
// adapter): what else is on the cables of a network that carries RoCE. A
// [Stream] is bytes from one host to another, of a length or without an end.
//
// What it follows:
//
//   - RFC 9293: headers, the handshake with its options (MSS, window scale of
//     RFC 7323, SACK permitted), and a FIN at the end of the bytes
//   - RFC 5681, RFC 6928: slow start, congestion avoidance, an initial window
//     of ten segments. Bytes are counted, not acknowledgements (RFC 3465)
//   - RFC 2018, RFC 6675: selective acknowledgements, and recovery by them:
//     fast retransmit after three duplicates, pipe, limited transmit
//   - RFC 6298: the retransmission timeout, with its 1 s at least, and backoff
//   - RFC 5681 4.2: an acknowledgement for each second segment, or delayed
//   - RFC 3168: ECN, as a setting; RFC 8257: DCTCP, as another one
//   - RFC 9438: CUBIC, with fast convergence, as a setting. Where round trips
//     are as short as in a data center it grows as Reno does (4.3), but for
//     what follows the window before the last loss
//
// All of it counts in integers, so a run is the same on every processor.
//
// It does not have: RACK-TLP (RFC 8985), so what is lost twice waits for the
// timeout; time stamps: one segment is timed in each round trip, and none that
// was sent again (RFC 6298, 3 and 4); pacing and segmentation offload; an
// application that reads or writes slowly; HyStart++ (RFC 9406); a FIN of the
// side that only receives, and what follows a connection (TIME-WAIT, RST); an
// end by too many timeouts.
package tcp
