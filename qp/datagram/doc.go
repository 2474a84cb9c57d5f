// Package datagram is the unreliable services: unreliable connections (UC, IBTA
// 9.8.2) and unreliable datagrams (UD, IBTA 9.8.3), with the management queue
// pair (GSI), which is one of UD.
//
// Nothing is acknowledged. So a request completes when its last packet was
// handed over, nothing is sent again, and a loss shows only in what does not
// arrive.
//
//	Sender      requests of both services    sender.go, post.go, transmit.go
//	UCReceiver  messages of a connection     uc.go
//	UDReceiver  datagrams                    ud.go
//
// # Errors of the sender
//
// A request that fails on this side completes with its error, those after it
// are flushed, and the queue pair goes to SQE: it receives as before, and
// Modify takes it back to RTS (IBTA 10.3.1).
//
// # What the receivers drop
//
// UC numbers its packets. A gap, or a packet that does not fit, drops the
// message under way. The next FIRST or ONLY packet begins a new one, whatever
// its number, and is executed. A receive that a dropped SEND has taken stays in
// hand for the next message. A WRITE that the rights, the key or the lengths
// forbid is dropped the same way, and so is a message without a receive.
//
// A SEND over UC that is longer than its receive ends the connection: the
// receive completes with a length error (IBTA 11.6.2). A datagram that is
// longer than its receive is dropped, and the receive stays: otherwise, over
// UD, any sender that knows the Q_Key could end the queue pair. A receive whose
// own memory has a fault completes with that fault, and ends the queue pair
// over UC and over UD.
//
// A page that must be fetched is fetched. The message that met it is dropped,
// because no peer can be asked to send it again.
package datagram
