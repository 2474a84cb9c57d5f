// Package mad is the wire format of RoCEv2's connection management: management
// datagrams (MADs, IBTA 13.4) of the communication management class (IBTA
// 12.6), as they travel in UD packets between the queue pairs 1 of two hosts.
// It has every message of the class, the reasons and statuses with their texts,
// service IDs with the port spaces of RDMA-CM, and the IP header that RDMA-CM
// puts in front of private data (IBTA A11).
//
// It has no protocol: package rdma/cm/agent knows which message is expected
// when. It decodes no UD packet: a MAD is the payload of one.
//
// A message's struct holds its fields. AppendTo encodes the whole MAD of 256
// bytes, and Parse decodes one. Neither allocates. Messages carry no length of
// their private data: the receiver sees the whole field, with zeros after what
// was sent.
package mad
