package abi

// Reply is what a command gave: the result of write(2), and what the kernel
// would have copied to the program.
type Reply struct {
	Errno Errno // 0: none
	N     int   // result of write(2) if there was no error

	// Resp goes to where the command's response pointer says.
	Resp []byte

	// Files were opened for the program, whose numbers go into Resp.
	Files []ReplyFile
}

// ReplyFile is a file that a program gets with a reply.
type ReplyFile struct {
	FD     int
	Offset int // of the 4 bytes of Resp for the number
}

// Fail returns the reply to a command that failed.
func Fail(e Errno) Reply { return Reply{Errno: e} }
