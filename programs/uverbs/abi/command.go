package abi

import (
	"encoding/binary"
	"strconv"
)

// Command is the number of a command.
type Command uint8

// The commands that are answered, with the numbers of ib_uverbs_write_cmds.
const (
	GetContext        Command = 0
	QueryDevice       Command = 1
	QueryPort         Command = 2
	AllocPD           Command = 3
	DeallocPD         Command = 4
	CreateAH          Command = 5
	DestroyAH         Command = 8
	RegMR             Command = 9
	ReregMR           Command = 11
	DeregMR           Command = 13
	AllocMW           Command = 14
	DeallocMW         Command = 16
	CreateCompChannel Command = 17
	CreateCQ          Command = 18
	ResizeCQ          Command = 19
	DestroyCQ         Command = 20
	ReqNotifyCQ       Command = 23
	CreateQP          Command = 24
	QueryQP           Command = 25
	ModifyQP          Command = 26
	DestroyQP         Command = 27
	PostSend          Command = 28
	AttachMcast       Command = 30
	DetachMcast       Command = 31
	CreateSRQ         Command = 32
	ModifySRQ         Command = 33
	QuerySRQ          Command = 34
	DestroySRQ        Command = 35
	CreateXSRQ        Command = 39
	NumCommands       Command = 41
)

// String returns the number.
func (c Command) String() string { return "command " + strconv.Itoa(int(c)) }

// The header of a command.
const (
	headerLen   = 8
	exHeaderLen = 16 // after the header, if the command is an extended one
	maxCommand  = 1 << 16

	flagExtended = 1 << 31
	maskCommand  = 0xff
)

// Request is a command as a program has written it. Its slices alias what was
// parsed.
type Request struct {
	Command  Command
	Extended bool
	Core     []byte // the command; of a plain one followed by the driver's part
	Driver   []byte // the driver's part; of a plain one after Decode

	coreRoom, driverRoom int // bytes of room for the reply
}

// Parse takes the header of a command off. The lengths that the header states
// are those of b (ib_uverbs_cmd_hdr, ib_uverbs_ex_cmd_hdr).
func Parse(b []byte) (Request, Errno) {
	if len(b) < headerLen || len(b) > maxCommand {
		return Request{}, EINVAL
	}
	number := binary.LittleEndian.Uint32(b)
	in, out := int(binary.LittleEndian.Uint16(b[4:])), int(binary.LittleEndian.Uint16(b[6:]))
	if number&^(flagExtended|maskCommand) != 0 {
		return Request{}, EINVAL
	}
	r := Request{Command: Command(number & maskCommand), Extended: number&flagExtended != 0}
	if !r.Extended {
		if in*4 != len(b) {
			return Request{}, EINVAL
		}
		r.Core, r.coreRoom = b[headerLen:], out*4
		return r, 0
	}
	return r, r.parseExtended(b[headerLen:], in, out)
}

// parseExtended takes the second header off, after which words have 8 bytes.
func (r *Request) parseExtended(b []byte, in, out int) Errno {
	if len(b) < exHeaderLen {
		return EINVAL
	}
	response := binary.LittleEndian.Uint64(b)
	driverIn, driverOut := int(binary.LittleEndian.Uint16(b[8:])), int(binary.LittleEndian.Uint16(b[10:]))
	reserved := binary.LittleEndian.Uint32(b[12:])
	b = b[exHeaderLen:]
	switch {
	case reserved != 0,
		(in+driverIn)*8 != len(b),
		(response != 0) != (out+driverOut != 0):
		return EINVAL
	}
	r.Core, r.Driver = b[:in*8], b[in*8:]
	r.coreRoom, r.driverRoom = out*8, driverOut*8
	return 0
}

// Decode decodes a plain command into v, a pointer to a struct of this package.
// What follows it is the driver's part.
func (r *Request) Decode(v any) Errno {
	n, err := binary.Decode(r.Core, binary.LittleEndian, v)
	if err != nil {
		return ENOSPC
	}
	r.Core, r.Driver = r.Core[:n], r.Core[n:]
	return 0
}

// DecodeExtended decodes an extended command into v, a pointer to a struct of
// this package. A program may know fewer fields, but the first least bytes, or
// more, which must be 0.
func (r *Request) DecodeExtended(v any, least int) Errno {
	if len(r.Core) < least {
		return ENOSPC
	}
	core, size := r.Core, binary.Size(v)
	if len(core) < size {
		core = append(make([]byte, 0, size), core...)[:size]
	}
	for _, b := range core[size:] {
		if b != 0 {
			return EOPNOTSUPP
		}
	}
	if _, err := binary.Decode(core, binary.LittleEndian, v); err != nil {
		return EINVAL
	}
	return 0
}

// Room reports whether the program has room for a reply of n bytes before the
// driver's part.
func (r *Request) Room(n int) bool { return r.coreRoom >= n }

// CoreRoom returns how many bytes of room there are before the driver's part of
// an extended command's reply, or in all of a plain one's.
func (r *Request) CoreRoom() int { return r.coreRoom }

// Encode returns the reply of a command: structs of this package, or nil. The
// driver's part follows core in the reply to a plain command, and the room for
// core in that to an extended one. What has no room is left out.
func (r *Request) Encode(core, driver any) []byte {
	out := appendStruct(nil, core)
	room := r.coreRoom
	if r.Extended {
		out = append(out, make([]byte, max(room-len(out), 0))...)[:room]
		room += r.driverRoom
	}
	out = appendStruct(out, driver)
	return out[:min(len(out), room)]
}

// Answer is the reply with these.
func (r *Request) Answer(core, driver any) Reply { return Reply{Resp: r.Encode(core, driver)} }

func appendStruct(b []byte, v any) []byte {
	if v == nil {
		return b
	}
	b, err := binary.Append(b, binary.LittleEndian, v)
	if err != nil {
		panic(err) // not a struct of this package
	}
	return b
}

// ParseArm parses a command that arms a completion queue, if that is what b is.
func ParseArm(b []byte) (cq uint32, solicitedOnly, ok bool) {
	const armLen = headerLen + 8
	if len(b) != armLen || binary.LittleEndian.Uint32(b) != uint32(ReqNotifyCQ) || binary.LittleEndian.Uint16(b[4:])*4 != armLen {
		return 0, false, false
	}
	return binary.LittleEndian.Uint32(b[headerLen:]), binary.LittleEndian.Uint32(b[headerLen+4:]) != 0, true
}
