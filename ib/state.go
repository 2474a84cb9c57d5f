package ib

import "strconv"

// State is the state of a queue pair (IBTA 10.3.1), with the numbers of
// ibv_qp_state. String returns the name, such as "RTS".
type State uint8

// States of a queue pair.
const (
	// StateReset: just made, or taken back. Nothing can be posted.
	StateReset State = iota
	// StateInit: receives can be posted. Packets are dropped.
	StateInit
	// StateRTR: ready to receive. Requests of the peer are answered.
	StateRTR
	// StateRTS: ready to send, the working state.
	StateRTS
	// StateSQD: the send queue drains. What has started ends, nothing
	// starts.
	StateSQD
	// StateSQE: send queue error, of UC and UD only.
	StateSQE
	// StateErr: everything posted completes with StatusWRFlushErr.
	StateErr
	NumStates
)

var stateNames = [NumStates]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

// String returns the name as the specification writes it.
func (s State) String() string {
	if s < NumStates {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}
