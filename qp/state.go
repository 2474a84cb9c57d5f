package qp

import "github.com/gosoftroce/rocev2/ib"

// ruleClass is a column of the state table: the services have different
// attributes.
type ruleClass uint8

const (
	classRC ruleClass = 1 << iota
	classUC
	classUD
	classGSI   // as UD, but it has no port to choose
	classXRCI  // XRC initiator: the requester's attributes of RC
	classXRCT  // XRC target: the responder's
	classDgram = classUD | classGSI
	classConn  = classRC | classUC | classXRCI | classXRCT
	classAll   = classConn | classDgram
)

func classOf(t ib.QPType) ruleClass {
	switch t {
	case ib.RC:
		return classRC
	case ib.UC:
		return classUC
	case ib.UD:
		return classUD
	case ib.GSI:
		return classGSI
	case ib.XRCInitiator:
		return classXRCI
	case ib.XRCTarget:
		return classXRCT
	}
	return 0
}

// transition is a row of the state table.
type transition struct {
	from, to ib.State
	class    ruleClass
	required ib.AttrMask
	optional ib.AttrMask // AttrState is always allowed
}

const (
	migOpt   = ib.AttrCurState | ib.AttrAltPath | ib.AttrAccess | ib.AttrPathMigState | ib.AttrRateLimit
	drainedC = ib.AttrAltPath | ib.AttrAccess | ib.AttrPKeyIndex | ib.AttrPathMigState | ib.AttrRateLimit
)

// transitions is the whole state table (IBTA 10.3.1 and 11.2.5.2, as Linux has
// it): what is not listed is not allowed. Any state may go to RESET, any but
// RESET to ERR. Linux has RATE_LIMIT for raw packets alone; here every service
// has it, from RTS on.
var transitions = []transition{
	{ib.StateReset, ib.StateReset, classAll, 0, 0},
	{ib.StateInit, ib.StateReset, classAll, 0, 0},
	{ib.StateRTR, ib.StateReset, classAll, 0, 0},
	{ib.StateRTS, ib.StateReset, classAll, 0, 0},
	{ib.StateSQD, ib.StateReset, classAll, 0, 0},
	{ib.StateSQE, ib.StateReset, classAll, 0, 0},
	{ib.StateErr, ib.StateReset, classAll, 0, 0},

	{ib.StateInit, ib.StateErr, classAll, 0, 0},
	{ib.StateRTR, ib.StateErr, classAll, 0, 0},
	{ib.StateRTS, ib.StateErr, classAll, 0, 0},
	{ib.StateSQD, ib.StateErr, classAll, 0, 0},
	{ib.StateSQE, ib.StateErr, classAll, 0, 0},
	{ib.StateErr, ib.StateErr, classAll, 0, 0},

	{ib.StateReset, ib.StateInit, classUD, ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey, 0},
	{ib.StateReset, ib.StateInit, classGSI, ib.AttrPKeyIndex | ib.AttrQKey, 0},
	{ib.StateReset, ib.StateInit, classConn, ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess, 0},
	{ib.StateInit, ib.StateInit, classUD, 0, ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey},
	{ib.StateInit, ib.StateInit, classGSI, 0, ib.AttrPKeyIndex | ib.AttrQKey},
	{ib.StateInit, ib.StateInit, classConn, 0, ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess},

	{ib.StateInit, ib.StateRTR, classDgram, 0, ib.AttrPKeyIndex | ib.AttrQKey},
	{ib.StateInit, ib.StateRTR, classUC | classXRCI, ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN,
		ib.AttrAltPath | ib.AttrAccess | ib.AttrPKeyIndex},
	{ib.StateInit, ib.StateRTR, classRC | classXRCT,
		ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN | ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer,
		ib.AttrAltPath | ib.AttrAccess | ib.AttrPKeyIndex},

	{ib.StateRTR, ib.StateRTS, classDgram, ib.AttrSQPSN, ib.AttrCurState | ib.AttrQKey | ib.AttrRateLimit},
	{ib.StateRTR, ib.StateRTS, classUC, ib.AttrSQPSN, migOpt},
	{ib.StateRTR, ib.StateRTS, classRC, ib.AttrTimeout | ib.AttrRetryCount | ib.AttrRNRRetry | ib.AttrSQPSN | ib.AttrMaxRdAtomic,
		migOpt | ib.AttrMinRNRTimer},
	{ib.StateRTR, ib.StateRTS, classXRCI, ib.AttrTimeout | ib.AttrRetryCount | ib.AttrRNRRetry | ib.AttrSQPSN | ib.AttrMaxRdAtomic, migOpt},
	{ib.StateRTR, ib.StateRTS, classXRCT, ib.AttrTimeout | ib.AttrSQPSN, migOpt | ib.AttrMinRNRTimer},

	{ib.StateRTS, ib.StateRTS, classDgram, 0, ib.AttrCurState | ib.AttrQKey | ib.AttrRateLimit},
	{ib.StateRTS, ib.StateRTS, classUC | classXRCI, 0, migOpt},
	{ib.StateRTS, ib.StateRTS, classRC | classXRCT, 0, migOpt | ib.AttrMinRNRTimer},
	{ib.StateRTS, ib.StateSQD, classAll, 0, ib.AttrEnableSQDNotify},

	{ib.StateSQD, ib.StateRTS, classDgram, 0, ib.AttrCurState | ib.AttrQKey | ib.AttrRateLimit},
	{ib.StateSQD, ib.StateRTS, classUC | classXRCI, 0, migOpt},
	{ib.StateSQD, ib.StateRTS, classRC | classXRCT, 0, migOpt | ib.AttrMinRNRTimer},
	{ib.StateSQD, ib.StateSQD, classDgram, 0, ib.AttrPKeyIndex | ib.AttrQKey | ib.AttrRateLimit},
	{ib.StateSQD, ib.StateSQD, classUC, 0, drainedC | ib.AttrAV},
	{ib.StateSQD, ib.StateSQD, classRC, 0, drainedC | ib.AttrAV | ib.AttrPort | ib.AttrTimeout | ib.AttrRetryCount | ib.AttrRNRRetry |
		ib.AttrMaxRdAtomic | ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer},
	{ib.StateSQD, ib.StateSQD, classXRCI, 0, drainedC | ib.AttrAV | ib.AttrPort | ib.AttrTimeout | ib.AttrRetryCount | ib.AttrRNRRetry |
		ib.AttrMaxRdAtomic},
	{ib.StateSQD, ib.StateSQD, classXRCT, 0, drainedC | ib.AttrAV | ib.AttrPort | ib.AttrTimeout | ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer},

	{ib.StateSQE, ib.StateRTS, classDgram, 0, ib.AttrCurState | ib.AttrQKey | ib.AttrRateLimit},
	{ib.StateSQE, ib.StateRTS, classUC, 0, ib.AttrCurState | ib.AttrAccess | ib.AttrRateLimit},
}

// findTransition returns the row for a service, or nil if the pair is not in
// the table.
func findTransition(from, to ib.State, typ ib.QPType) *transition {
	class := classOf(typ)
	for i := range transitions {
		if t := &transitions[i]; t.from == from && t.to == to && t.class&class != 0 {
			return t
		}
	}
	return nil
}

// checkTransition applies the state table to a Modify call.
func checkTransition(from, to ib.State, typ ib.QPType, mask ib.AttrMask) error {
	t := findTransition(from, to, typ)
	if t == nil {
		return &ib.ModifyError{From: from, To: to, Type: typ, Err: ib.ErrTransition}
	}
	if missing := t.required &^ mask; missing != 0 {
		return &ib.ModifyError{From: from, To: to, Type: typ, Attr: missing, Err: ib.ErrAttrMissing}
	}
	if extra := mask &^ (t.required | t.optional | ib.AttrState); extra != 0 {
		return &ib.ModifyError{From: from, To: to, Type: typ, Attr: extra, Err: ib.ErrAttrNotAllowed}
	}
	return nil
}
