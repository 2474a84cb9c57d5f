package rcopy

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/stream"
	"github.com/gosoftroce/rocev2/rdma/rdmanet"
	"github.com/gosoftroce/rocev2/verbs"
)

// Config says how files are copied. The zero value works for a client.
type Config struct {
	Root string // server: the directory that files are written below; required

	// MaxSize is the largest file that a server takes, in bytes. 0 means no
	// limit.
	MaxSize uint64

	IdleTimeout time.Duration // nothing moves for so long; 0: no limit
	Clients     int           // that Serve serves; 0: without end

	OnListen   func()                            // server: clients can connect
	OnProgress func(done, total uint64)          // client
	OnFile     func(from, path string, r Result) // server, from several goroutines
	OnFailed   func(from string, why error)      // server: a client came to nothing
}

// Result is what was copied.
type Result struct {
	Bytes   uint64
	Elapsed time.Duration // of the bytes, and the answer to them
}

// Gbps returns the bandwidth in Gb/s.
func (r Result) Gbps() float64 { return float64(r.Bytes*8) / float64(max(r.Elapsed, 1)) }

// copySize is how many bytes a client reads from its file at once.
const copySize = 256 << 10

// Run copies a file to a server, over dev, where it is called path.
func Run(ctx context.Context, dev *verbs.Device, server netip.AddrPort, file *os.File, path string, c Config) (Result, error) {
	res, err := run(ctx, dev, server, file, path, c)
	if err != nil {
		return res, fmt.Errorf("rcopy: %w", interop.Cause(ctx, err))
	}
	return res, nil
}

func run(ctx context.Context, dev *verbs.Device, server netip.AddrPort, file *os.File, path string, c Config) (Result, error) {
	info, err := file.Stat()
	if err != nil {
		return Result{}, err
	}
	if !info.Mode().IsRegular() {
		return Result{}, interop.BadConfig("%s is not a regular file", file.Name())
	}
	if len(path) == 0 || len(path) >= maxPath {
		return Result{}, interop.BadConfig("the name at the server has %d bytes; 1 to %d are possible", len(path), maxPath-1)
	}
	conn, err := stream.Dial(ctx, dev, server, rdmanet.Options{}, c.IdleTimeout)
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	if err := ask(conn, cmdOpen, openMessage(path, 0o100000|uint32(info.Mode().Perm()))); err != nil {
		return Result{}, err
	}
	res, err := write(conn, file, uint64(info.Size()), c)
	if err != nil {
		return res, err
	}
	return res, ask(conn, cmdClose, closeMessage())
}

// ask sends a message and reads the answer.
func ask(conn io.ReadWriter, c command, message []byte) error {
	if _, err := conn.Write(message); err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	return readAnswer(conn, c)
}

// write sends the bytes of the file.
func write(conn io.ReadWriter, file io.Reader, size uint64, c Config) (Result, error) {
	if _, err := conn.Write(writeMessage(size)); err != nil {
		return Result{}, fmt.Errorf("%v: %w", cmdWrite, err)
	}
	begin := time.Now()
	buf := make([]byte, min(size, copySize))
	for done := uint64(0); done < size; {
		n, err := io.ReadFull(file, buf[:min(size-done, copySize)])
		if err != nil {
			return Result{Bytes: done}, fmt.Errorf("the file became shorter while it was copied: %w", err)
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			return Result{Bytes: done}, fmt.Errorf("after %d of %d bytes: %w", done, size, err)
		}
		if done += uint64(n); c.OnProgress != nil {
			c.OnProgress(done, size)
		}
	}
	err := readAnswer(conn, cmdWrite)
	return Result{size, time.Since(begin)}, err
}
