package rcopy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/stream"
	"github.com/gosoftroce/rocev2/verbs"
)

// Serve takes files on a port of dev, until it has had Config.Clients clients,
// or ctx ends.
func Serve(ctx context.Context, dev *verbs.Device, at netip.AddrPort, c Config) error {
	if c.Root == "" {
		return interop.BadConfig("rcopy: no directory to write below")
	}
	root, err := os.OpenRoot(c.Root)
	if err != nil {
		return fmt.Errorf("rcopy: %w", err)
	}
	defer root.Close()
	s := stream.Server{
		Idle: c.IdleTimeout, Clients: c.Clients, Ready: c.OnListen,
		Serve: func(_ context.Context, conn *stream.Conn) (bool, error) {
			v := visit{conn: conn, root: root, cfg: &c}
			return true, v.serve()
		},
		Failed: func(from net.Addr, err error) {
			if c.OnFailed != nil {
				c.OnFailed(from.String(), err)
			}
		},
	}
	if err := s.Run(ctx, dev, at); err != nil {
		return fmt.Errorf("rcopy: %w", err)
	}
	return nil
}

// visit is one client.
type visit struct {
	conn *stream.Conn
	root *os.Root
	cfg  *Config

	file *os.File // nil: none is open
	path string
	res  Result // of the file
}

// serve answers a client until it leaves, or asks for something that is not
// possible.
func (v *visit) serve() error {
	defer func() {
		if v.file != nil {
			v.file.Close()
		}
	}()
	for {
		h, err := readHeader(v.conn)
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		err = v.do(h)
		status := statusOf(err)
		answer := header{command: h.command | response, length: headerLen, data: uint32(status), id: h.id}
		if _, sendErr := v.conn.Write(answer.appendTo(nil)); err == nil {
			err = sendErr
		}
		if err != nil {
			return fmt.Errorf("%v: %w", h.command, err)
		}
	}
}

// statusOf returns what the client is told of an error.
func statusOf(err error) syscall.Errno {
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return errno
	}
	return syscall.EINVAL
}

func (v *visit) do(h header) error {
	switch h.command {
	case cmdOpen:
		return v.open(h)
	case cmdWrite:
		return v.write(h)
	case cmdClose:
		return v.close()
	}
	return fmt.Errorf("%w: %v", ErrProtocol, h.command)
}

func (v *visit) open(h header) error {
	if v.file != nil {
		return fmt.Errorf("another file is open: %w", syscall.EBUSY)
	}
	n := int(h.length) - headerLen
	if n < 1 || n > maxPath {
		return fmt.Errorf("%w: a name of %d bytes", ErrProtocol, n)
	}
	name := make([]byte, n)
	if _, err := io.ReadFull(v.conn, name); err != nil {
		return err
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	// The directory is the root of the names. What leads out of it, by
	// dots or links, os.Root refuses.
	v.path = strings.TrimPrefix(path.Clean("/"+string(name)), "/")
	if v.path == "" {
		return fmt.Errorf("no name: %w", syscall.EISDIR)
	}
	mode := os.FileMode(h.data) & os.ModePerm
	file, err := v.root.OpenFile(v.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		if statusOf(err) == syscall.EINVAL { // it leads out of the directory
			err = fmt.Errorf("%w: %w", err, syscall.EACCES)
		}
		return err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return fmt.Errorf("%q is not a regular file: %w", v.path, syscall.EACCES)
	}
	v.file, v.res = file, Result{}
	return nil
}

func (v *visit) write(h header) error {
	if h.length != headerLen+sizeLen {
		return fmt.Errorf("%w: a WRITE of %d bytes, it has %d", ErrProtocol, h.length, headerLen+sizeLen)
	}
	var p [sizeLen]byte
	if _, err := io.ReadFull(v.conn, p[:]); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint64(p[:])
	switch {
	case v.file == nil:
		return fmt.Errorf("no file is open: %w", syscall.EINVAL)
	case size > 1<<62 || v.cfg.MaxSize > 0 && size > v.cfg.MaxSize-v.res.Bytes:
		return fmt.Errorf("a file of %d bytes is too large: %w", v.res.Bytes+size, syscall.EFBIG)
	}
	begin := time.Now()
	n, err := io.CopyN(v.file, v.conn, int64(size))
	v.res.Bytes += uint64(n)
	v.res.Elapsed += time.Since(begin)
	if err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", n, size, err)
	}
	return nil
}

func (v *visit) close() error {
	if v.file == nil {
		return fmt.Errorf("no file is open: %w", syscall.EINVAL)
	}
	err := v.file.Close()
	v.file = nil
	if err == nil && v.cfg.OnFile != nil {
		v.cfg.OnFile(v.conn.RemoteAddr().String(), v.path, v.res)
	}
	return err
}
