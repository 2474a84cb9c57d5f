package abi

// Reply is what a command gave: the result of write(2), and what the kernel
// would have copied to the program.
type Reply struct {
	Errno Errno // 0: none
	N     int   // result of write(2) if there was no error

	// Resp goes to where the command's response pointer says.
	Resp []byte

	// Files are opened for the program. The numbers that they get there go
	// into Resp. Whoever takes the reply closes them when they are sent.
	Files []ReplyFile
}

// ReplyFile is a file that a program gets with a reply.
type ReplyFile struct {
	File   File
	Offset int // of the 4 bytes of Resp for its number
}

// File is an open file: an *os.File.
type File interface {
	Fd() uintptr
	Close() error
}

// Fail returns the reply to a command that failed.
func Fail(e Errno) Reply { return Reply{Errno: e} }
