package verbs

import (
	"fmt"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/lease"
)

// Errors that programs tell apart with errors.Is. The errors that wrap them say
// which object, request or attribute it was.
var (
	// ErrClosed is returned for an object that has been closed, or whose
	// device has; errors.Is(err, net.ErrClosed) holds for it.
	ErrClosed = hca.ErrClosed
	// ErrOtherDevice: two objects of different devices cannot work
	// together.
	ErrOtherDevice = hca.ErrOtherDevice
	// ErrNoResources: a limit of the device is reached.
	ErrNoResources = hca.ErrNoResources
	// ErrGSIInUse: the device has a GSI queue pair already.
	ErrGSIInUse = ib.ErrGSIInUse
	// ErrInUse: other objects use it, so it cannot be closed yet.
	ErrInUse = hca.ErrInUse
	// ErrNoRoom: CQ.Wait was given an empty slice.
	ErrNoRoom = hca.ErrNoRoom
	// ErrNotUD: only UD queue pairs can be attached to multicast groups.
	ErrNotUD = hca.ErrNotUD
	// ErrNotGroup: not a multicast address of the device's IP version.
	ErrNotGroup = transport.ErrNotGroup
	// ErrNotAttached: the queue pair is not attached to the group.
	ErrNotAttached = hca.ErrNotAttached
	// ErrRange: a range or an offset is not inside the memory.
	ErrRange = ib.ErrRange
	// ErrNoOwner: with Config.Leased, no process owns the port of the
	// address and can be asked.
	ErrNoOwner = lease.ErrNoOwner
)

// Errors of PostSend and PostRecv, in a PostError. Nothing of the request was
// queued, and the queue pair is as before.
var (
	// ErrQueueFull: as many requests are outstanding as the queue holds.
	// Poll completions, then post again.
	ErrQueueFull = ib.ErrQueueFull
	// ErrState: the state of the queue pair does not allow it. Connect it
	// first.
	ErrState = ib.ErrState
	// ErrOpcode: Opcode is not set, or there is no such operation, or none
	// for queue pairs of this type.
	ErrOpcode = ib.ErrOpcode
	// ErrTooManySGE: more entries than QPConfig.MaxSendSGE or MaxRecvSGE.
	ErrTooManySGE = ib.ErrTooManySGE
	// ErrInline: only SEND and WRITE carry inline data.
	ErrInline = ib.ErrInline
	// ErrInlineTooLong: more bytes than QPConfig.MaxInline.
	ErrInlineTooLong = ib.ErrInlineTooLong
	// ErrTooLong: a message has at most 2^31 bytes.
	ErrTooLong = ib.ErrTooLong
	// ErrAtomicLength: SGList of an atomic must have 8 bytes.
	ErrAtomicLength = ib.ErrAtomicLength
	// ErrAtomicWrite: OpAtomicWrite carries 8 bytes, in SGList or Inline.
	ErrAtomicWrite = ib.ErrAtomicWrite
	// ErrFlush: OpFlush has no FlushType, an unknown FlushLevel, or a
	// SGList.
	ErrFlush = ib.ErrFlush
	// ErrNoBind: OpBindMW has no Bind.
	ErrNoBind = ib.ErrNoBind
	// ErrNoReg: OpRegMR has no Reg.
	ErrNoReg = ib.ErrNoReg
	// ErrNoKey: OpLocalInv or OpReadInv has no InvalidateKey.
	ErrNoKey = ib.ErrNoKey
	// ErrNoRdAtomic: ConnectConfig.MaxRdAtomic is 0.
	ErrNoRdAtomic = ib.ErrNoRdAtomic
	// ErrNoAH: a datagram has no AH.
	ErrNoAH = ib.ErrNoAH
	// ErrAHClosed: the AddressHandle of a datagram has been closed.
	ErrAHClosed = ib.ErrAHClosed
	// ErrAHDomain: the AddressHandle of a datagram is of another protection
	// domain than the queue pair, or of another device.
	ErrAHDomain = ib.ErrAHDomain
	// ErrRemoteQPN: the RemoteQPN of a datagram is not set, or too large.
	ErrRemoteQPN = ib.ErrRemoteQPN
	// ErrDatagramTooLong: a datagram is longer than one packet carries, see
	// PortAttr.ActiveMTU.
	ErrDatagramTooLong = ib.ErrDatagramTooLong
	// ErrRemoteSRQN: the RemoteSRQN of a request of XRC is not set, or too
	// large.
	ErrRemoteSRQN = ib.ErrRemoteSRQN
	// ErrNoSend: an XRCTarget only receives.
	ErrNoSend = ib.ErrNoSend
	// ErrNoReceive: an XRCInitiator only sends.
	ErrNoReceive = ib.ErrNoReceive
	// ErrShared: the queue pair takes its receives from an SRQ, or is an
	// XRCTarget. Post them to the SRQ.
	ErrShared = ib.ErrShared
	// ErrRemote: RemoteMemory.At or MR.RemoteAt was asked for a place
	// outside of the memory.
	ErrRemote = ib.ErrRemote
)

// Errors of [QP.Modify] and of what calls it, in a ModifyError. Nothing was
// changed.
var (
	// ErrTransition: the state table has no such transition.
	ErrTransition = ib.ErrTransition
	// ErrAttrMissing: the transition needs an attribute that the mask
	// lacks.
	ErrAttrMissing = ib.ErrAttrMissing
	// ErrAttrNotAllowed: the mask names an attribute that the transition
	// does not take.
	ErrAttrNotAllowed = ib.ErrAttrNotAllowed
	// ErrAttrValue: the value of an attribute is not possible.
	ErrAttrValue = ib.ErrAttrValue
	// ErrCurState: the queue pair is not in Attr.CurState.
	ErrCurState = ib.ErrCurState
	// ErrNotDrained: the send queue has not drained yet.
	ErrNotDrained = ib.ErrNotDrained
)

// PostError says which of the work requests of a call was refused. The Index
// requests before it were accepted and will complete; those after it were not
// looked at. errors.Is tells the cause, ErrQueueFull for example.
type PostError struct {
	Index int    // of the refused request: as many were accepted
	ID    uint64 // of the refused request
	Err   error  // the cause
}

// Error says which request was refused and why.
func (e *PostError) Error() string {
	return fmt.Sprintf("verbs: work request %d (id %d) refused: %v", e.Index, e.ID, e.Err)
}

// Unwrap returns the cause.
func (e *PostError) Unwrap() error { return e.Err }
