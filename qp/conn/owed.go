package conn

// Owed is what a queue pair has to send the peer beside requests.
type Owed uint8

const (
	OwesNothing Owed = iota
	OwesAck          // a lone acknowledgement, for which the peer does not wait
	OwesAckNow       // a lone acknowledgement: the peer can send nothing before it comes
	OwesAnswers      // anything else
)
