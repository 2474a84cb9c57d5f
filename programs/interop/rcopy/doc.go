// Package rcopy speaks with rcopy of librdmacm, in both roles: a client copies
// a file to a server, over a stream (rsockets).
//
// A message has a header of 16 bytes, and the client waits for the answer to
// each: OPEN names the file, WRITE says how many bytes come and is followed by
// them, CLOSE ends the file. Numbers are little-endian: the original sends them
// as the processor has them.
//
// The original server writes whatever file the client names. This one writes
// below a directory, wherever the name points.
package rcopy
