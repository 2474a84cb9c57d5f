// Package abi is the binary interface between librdmacm and the kernel's
// connection manager: the commands that a program writes to the file
// /dev/infiniband/rdma_cm, and the replies to them (linux/rdma/rdma_user_cm.h).
//
// It decodes what a program wrote and encodes what it gets. A program is not
// trusted: a command that is too short is refused, and nothing else is looked
// at here. Numbers are those of Linux on a little-endian machine, whatever this
// runs on.
package abi

// Number says what a command does.
type Number uint32

// The commands.
const (
	CreateID Number = iota
	DestroyID
	BindIP
	ResolveIP
	ResolveRoute
	QueryRoute
	Connect
	Listen
	Accept
	Reject
	Disconnect
	InitQPAttr
	GetEvent
	GetOption
	SetOption
	Notify
	JoinIPMulticast
	LeaveMulticast
	MigrateID
	Query
	Bind
	ResolveAddr
	JoinMulticast
	Numbers // how many there are
)

// What Query asks for.
const (
	QueryAddr = 0
	QueryPath = 1
	QueryGID  = 2
)

// Levels and names of options.
const (
	LevelID = 0
	LevelIB = 1

	OptionTOS        = 0
	OptionReuseAddr  = 1
	OptionAFOnly     = 2
	OptionAckTimeout = 3

	OptionIBPath = 1
)

// JoinSendOnly is how a multicast group is joined to send only. 0 is as a full
// member.
const JoinSendOnly = 1

// MaxPrivate is the size of the private data of a command or an event.
const MaxPrivate = 256

// Families of addresses.
const (
	AFInet  = 2
	AFInet6 = 10
	AFIB    = 27
)
