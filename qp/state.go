package qp

import (
	"strconv"

	"github.com/gosoftroce/rocev2/rocev2"
)

// State is the state of a queue pair (IBTA 10.3.1), with the numbers of ibv_qp_state.
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
	numStates
)

var stateNames = [numStates]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

// String returns the name as the specification writes it.
func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// ruleClass is a column of the state table: the services have different attributes.
type ruleClass uint8

const (
	classRC ruleClass = 1 << iota
	classUC
	classUD
	classAll = classRC | classUC | classUD
)

func classOf(s rocev2.Service) ruleClass {
	switch s {
	case rocev2.ServiceRC:
		return classRC
	case rocev2.ServiceUC:
		return classUC
	case rocev2.ServiceUD:
		return classUD
	}
	return 0
}

// transition is a row of the state table.
type transition struct {
	from, to State
	class    ruleClass
	required AttrMask
	optional AttrMask // AttrState is always allowed
}

const (
	migOpt   = AttrCurState | AttrAltPath | AttrAccess | AttrPathMigState
	drainedC = AttrAltPath | AttrAccess | AttrPKeyIndex | AttrPathMigState
)

// transitions is the whole state table of the three services (IBTA 10.3.1 and 11.2.5.2, as Linux has it): what is not
// listed is not allowed. Any state may go to RESET, any but RESET to ERR.
var transitions = []transition{
	{StateReset, StateReset, classAll, 0, 0},
	{StateInit, StateReset, classAll, 0, 0},
	{StateRTR, StateReset, classAll, 0, 0},
	{StateRTS, StateReset, classAll, 0, 0},
	{StateSQD, StateReset, classAll, 0, 0},
	{StateSQE, StateReset, classAll, 0, 0},
	{StateErr, StateReset, classAll, 0, 0},

	{StateInit, StateErr, classAll, 0, 0},
	{StateRTR, StateErr, classAll, 0, 0},
	{StateRTS, StateErr, classAll, 0, 0},
	{StateSQD, StateErr, classAll, 0, 0},
	{StateSQE, StateErr, classAll, 0, 0},
	{StateErr, StateErr, classAll, 0, 0},

	{StateReset, StateInit, classUD, AttrPKeyIndex | AttrPort | AttrQKey, 0},
	{StateReset, StateInit, classRC | classUC, AttrPKeyIndex | AttrPort | AttrAccess, 0},
	{StateInit, StateInit, classUD, 0, AttrPKeyIndex | AttrPort | AttrQKey},
	{StateInit, StateInit, classRC | classUC, 0, AttrPKeyIndex | AttrPort | AttrAccess},

	{StateInit, StateRTR, classUD, 0, AttrPKeyIndex | AttrQKey},
	{StateInit, StateRTR, classUC, AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN,
		AttrAltPath | AttrAccess | AttrPKeyIndex},
	{StateInit, StateRTR, classRC,
		AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN | AttrMaxDestRdAtomic | AttrMinRNRTimer,
		AttrAltPath | AttrAccess | AttrPKeyIndex},

	{StateRTR, StateRTS, classUD, AttrSQPSN, AttrCurState | AttrQKey},
	{StateRTR, StateRTS, classUC, AttrSQPSN, migOpt},
	{StateRTR, StateRTS, classRC, AttrTimeout | AttrRetryCount | AttrRNRRetry | AttrSQPSN | AttrMaxQPRdAtomic,
		migOpt | AttrMinRNRTimer},

	{StateRTS, StateRTS, classUD, 0, AttrCurState | AttrQKey},
	{StateRTS, StateRTS, classUC, 0, migOpt},
	{StateRTS, StateRTS, classRC, 0, migOpt | AttrMinRNRTimer},
	{StateRTS, StateSQD, classAll, 0, AttrEnableSQDNotify},

	{StateSQD, StateRTS, classUD, 0, AttrCurState | AttrQKey},
	{StateSQD, StateRTS, classUC, 0, migOpt},
	{StateSQD, StateRTS, classRC, 0, migOpt | AttrMinRNRTimer},
	{StateSQD, StateSQD, classUD, 0, AttrPKeyIndex | AttrQKey},
	{StateSQD, StateSQD, classUC, 0, drainedC | AttrAV},
	{StateSQD, StateSQD, classRC, 0, drainedC | AttrAV | AttrPort | AttrTimeout | AttrRetryCount | AttrRNRRetry |
		AttrMaxQPRdAtomic | AttrMaxDestRdAtomic | AttrMinRNRTimer},

	{StateSQE, StateRTS, classUD, 0, AttrCurState | AttrQKey},
	{StateSQE, StateRTS, classUC, 0, AttrCurState | AttrAccess},
}

// findTransition returns the row for a service, or nil if the pair is not in the table.
func findTransition(from, to State, s rocev2.Service) *transition {
	class := classOf(s)
	for i := range transitions {
		if t := &transitions[i]; t.from == from && t.to == to && t.class&class != 0 {
			return t
		}
	}
	return nil
}

// checkTransition applies the state table to a Modify call.
func checkTransition(from, to State, s rocev2.Service, mask AttrMask) error {
	t := findTransition(from, to, s)
	if t == nil {
		return &ModifyError{From: from, To: to, Service: s, Err: ErrTransition}
	}
	if missing := t.required &^ mask; missing != 0 {
		return &ModifyError{From: from, To: to, Service: s, Attr: missing, Err: ErrAttrMissing}
	}
	if extra := mask &^ (t.required | t.optional | AttrState); extra != 0 {
		return &ModifyError{From: from, To: to, Service: s, Attr: extra, Err: ErrAttrNotAllowed}
	}
	return nil
}
