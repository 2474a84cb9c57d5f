//go:build linux

package ucma

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rdma/cm"
)

// maxOption is the longest value of an option: some paths.
const maxOption = 4096

func (c *Client) setOption(in *abi.SetOptionCmd) ([]byte, uabi.Errno) {
	i, errno := c.ids.usable(in.ID)
	if errno != 0 {
		return nil, errno
	}
	if in.Len > maxOption {
		return nil, uabi.EINVAL
	}
	value := make([]byte, in.Len)
	if len(value) > 0 && (c.program.Read == nil || c.program.Read(in.Value, value) != nil) {
		return nil, uabi.EFAULT
	}
	switch in.Level {
	case abi.LevelID:
		return nil, setIDOption(i, in.Name, value)
	case abi.LevelIB:
		if in.Name == abi.OptionIBPath {
			return nil, setPath(c, i, value)
		}
	}
	return nil, uabi.ENOSYS
}

func setIDOption(i *ident, name uint32, value []byte) uabi.Errno {
	size := 1
	if name == abi.OptionReuseAddr || name == abi.OptionAFOnly {
		size = 4
	}
	if name > abi.OptionAckTimeout {
		return uabi.ENOSYS
	}
	if len(value) != size {
		return uabi.EINVAL
	}
	switch name {
	case abi.OptionTOS:
		i.class = value[0]
		return errnoOf(i.id.SetOption(cm.WithTOS(value[0])))
	case abi.OptionReuseAddr:
		on := binary.LittleEndian.Uint32(value) != 0
		err := i.id.SetOption(cm.WithReuseAddr(on))
		if err != nil && on && i.backlog == 0 { // Linux refuses it only of listeners
			return 0
		}
		return errnoOf(err)
	case abi.OptionAFOnly:
		return errnoOf(i.id.SetOption(cm.WithAFOnly(binary.LittleEndian.Uint32(value) != 0)))
	}
	if i.datagrams {
		return uabi.EINVAL
	}
	code := value[0] & 31
	if code == 0 {
		code = ackTimeout // 0 is no timeout, or storms of packets
	}
	return errnoOf(i.id.SetOption(cm.WithAckTimeout(code)))
}

// setPath takes the path that a program has found itself: the route is resolved
// so. Which way packets go is the system's affair.
func setPath(c *Client, i *ident, value []byte) uabi.Errno {
	if len(value) == 0 || len(value)%abi.PathDataLen != 0 {
		return uabi.EINVAL
	}
	for ; len(value) > 0; value = value[abi.PathDataLen:] {
		if binary.LittleEndian.Uint32(value) == abi.PathFlags {
			return c.routeOf(i, 0)
		}
	}
	return uabi.EINVAL
}

// join joins a multicast group. The program attaches its queue pair itself,
// when the event has told it where the group is.
func (c *Client) join(in *abi.JoinCmd) ([]byte, uabi.Errno) {
	if errno := refused(&in.Addr); errno != 0 || in.Flags > abi.JoinSendOnly {
		return nil, uabi.EINVAL
	}
	i, errno := c.ids.usable(in.ID)
	switch {
	case errno != 0:
		return nil, errno
	case i.wild || i.id.Device() == nil || !i.datagrams:
		return nil, uabi.EINVAL
	}
	g := c.ids.join(i, in.UID)
	if g == nil {
		return nil, uabi.ENOMEM
	}
	i.joins = append(i.joins, g)
	if err := i.id.JoinMulticast(address(&in.Addr).Addr()); err != nil {
		i.joins = i.joins[:len(i.joins)-1]
		c.ids.leave(g)
		return nil, errnoOf(err)
	}
	return abi.U32(g.number), 0
}

func (c *Client) leave(in *abi.IDCmd) ([]byte, uabi.Errno) {
	g := c.ids.groups[in.ID]
	switch {
	case g == nil && all.groups.has(in.ID):
		return nil, uabi.EINVAL
	case g == nil:
		return nil, uabi.ENOENT
	}
	g.left = true
	c.ids.leave(g)
	c.queue.drop(func(e *event) bool { return e.group == g })
	return abi.U32(g.reported), 0
}
