package ib

import "strconv"

// State is the state of a queue pair (IBTA 10.3.1), with the numbers of
// ibv_qp_state.
type State uint8

// The states.
const (
	StateReset State = iota // created; nothing can be posted
	StateInit               // receives can be posted, packets are dropped
	StateRTR                // ready to receive: answers requests
	StateRTS                // ready to send: the working state
	StateSQD                // send queue drained, or draining: started messages end, no new one starts
	StateSQE                // send queue error; UC and UD only
	StateErr                // everything posted is flushed, packets are dropped
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
