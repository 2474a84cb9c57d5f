// Package dissect reads captures of RoCEv2 traffic and says what happens in
// them. It decodes every packet, checks its ICRC, and follows the connections:
// which packet is sent again, what is missing, which side refused what, what
// was acknowledged when, and which message a packet belongs to. Management
// datagrams of connection management are decoded, and tell which queue pairs
// are connected.
//
//	c, err := dissect.Open(file)
//	for {
//		p, err := c.Next()
//		if err != nil { // io.EOF at the end
//			break
//		}
//		fmt.Println(dissect.Line(p))
//	}
//
// What programs say to each other is decoded where it is a protocol of this
// software, or rsockets: connections of packages rdma and rdmanet whose REQ and
// REP the capture has.
//
// A capture is read as a stream: memory does not grow with its length. What is
// kept of connections and messages is bounded (Limits), because a capture may
// be hostile. No input panics.
//
// It opens no files and no sockets: a Source gives it frames. It does not
// reassemble IP fragments, which no receiver of RoCEv2 takes, and it decodes
// neither RoCE version 1 nor InfiniBand link headers.
package dissect
