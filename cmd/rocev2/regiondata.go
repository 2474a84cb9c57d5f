package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/rdma"
)

// wanted reports whether a flag asks for something that is around the device of
// the command.
func (i *inspector) wanted() bool {
	return i.flags.pcap != "" || i.flags.stats != "" || len(i.rules.Rules) > 0
}

// rate says how much was moved in which time.
func rate(n int64, d time.Duration) string {
	s := fmt.Sprintf("%d bytes in %.3f s", n, d.Seconds())
	if d > 0 && n >= 1<<20 {
		s += fmt.Sprintf(", %.2f Gb/s", float64(n)*8/1e9/d.Seconds())
	}
	return s
}

func newRegionRead(s streams) *cobra.Command {
	var f regionFlags
	var offset, length, out string
	var asHex, quiet, always bool
	cmd := &cobra.Command{
		Use:   "read HOST[:PORT]/NAME",
		Short: "Read a region, to standard output or a file",
		Example: `  rocev2 region read 192.0.2.1/scratch -o copy
  rocev2 region read 192.0.2.1/scratch --offset 64KiB --length 16 --hex`,
		Args: regionArgs("HOST[:PORT]/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := parseWhere(args[0], true)
			if err != nil {
				return err
			}
			off, err := parseBytes("--offset", offset)
			if err != nil {
				return err
			}
			n := int64(-1)
			if length != "" {
				if n, err = parseBytes("--length", length); err != nil {
					return err
				}
			}
			return f.with(cmd.Context(), s, w, func(ctx context.Context, s streams, _ *rdma.Conn, r *rdma.RemoteRegion) error {
				return readRegion(ctx, s, r, off, n, out, asHex, quiet, always)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&offset, "offset", "0", "where to begin, in `bytes`")
	fs.StringVar(&length, "length", "", "how many `bytes` to read (default: all that follow)")
	fs.StringVarP(&out, "output", "o", "", "write to `FILE` instead of standard output")
	fs.BoolVar(&asHex, "hex", false, "print as people read bytes")
	fs.BoolVarP(&quiet, "quiet", "q", false, "do not say how fast it was")
	fs.BoolVar(&always, "progress", false, "show progress even if standard error is not a terminal")
	f.register(cmd)
	return cmd
}

func readRegion(ctx context.Context, s streams, r *rdma.RemoteRegion, off, n int64, out string, asHex, quiet, always bool) (err error) {
	switch {
	case off > r.Size():
		return fmt.Errorf("region %s has %d bytes: offset %d is beyond its end", r.Name(), r.Size(), off)
	case n > r.Size()-off:
		return fmt.Errorf("region %s has %d bytes: there are not %d at offset %d", r.Name(), r.Size(), n, off)
	}
	if n < 0 {
		n = r.Size() - off
	}
	to, done, err := output(s, out, asHex)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	if asHex {
		d := hex.Dumper(to)
		defer d.Close()
		to = d
	}
	p := newProgress(s, always)
	defer p.clear()
	begin := time.Now()
	moved, err := r.CopyTo(ctx, to, off, n, func(done int64) { p.show("read", uint64(done), uint64(n)) })
	if err != nil {
		return fmt.Errorf("after %d bytes: %w", moved, err)
	}
	p.clear()
	if !quiet && !asHex {
		fmt.Fprintln(s.err, rate(moved, time.Since(begin)))
	}
	return nil
}

func newRegionWrite(s streams) *cobra.Command {
	var f regionFlags
	var offset, in string
	var persist, quiet, always bool
	cmd := &cobra.Command{
		Use:   "write HOST[:PORT]/NAME",
		Short: "Write standard input or a file to a region",
		Example: `  rocev2 region write 192.0.2.1/scratch -i image.bin
  date | rocev2 region write 192.0.2.1/log --offset 4096 --persist`,
		Args: regionArgs("HOST[:PORT]/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := parseWhere(args[0], true)
			if err != nil {
				return err
			}
			off, err := parseBytes("--offset", offset)
			if err != nil {
				return err
			}
			from := s.in
			if in != "" && in != "-" {
				file, err := os.Open(in)
				if err != nil {
					return err
				}
				defer file.Close()
				if st, err := file.Stat(); err == nil && st.IsDir() {
					return usagef("--input %s: it is a directory", in)
				}
				from = file
			}
			return f.with(cmd.Context(), s, w, func(ctx context.Context, s streams, _ *rdma.Conn, r *rdma.RemoteRegion) error {
				return writeRegion(ctx, s, r, from, off, persist, quiet, always)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&offset, "offset", "0", "where to begin, in `bytes`")
	fs.StringVarP(&in, "input", "i", "", "read `FILE` instead of standard input")
	fs.BoolVar(&persist, "persist", false, "wait until the bytes are on stable storage of the daemon (regions of files)")
	fs.BoolVarP(&quiet, "quiet", "q", false, "do not say how fast it was")
	fs.BoolVar(&always, "progress", false, "show progress even if standard error is not a terminal")
	f.register(cmd)
	return cmd
}

// writeChunk is how much is read of the input before it is written.
const writeChunk = 4 << 20

// writeRegion writes the input. What is longer than the region is refused
// before the part that does not fit is read; what fitted is written.
func writeRegion(ctx context.Context, s streams, r *rdma.RemoteRegion, from io.Reader, off int64, persist, quiet, always bool) error {
	switch {
	case !r.Writable():
		return fmt.Errorf("region %s is read-only", r.Name())
	case persist && !r.Persistent():
		return fmt.Errorf("--persist: region %s has no stable storage", r.Name())
	case off > r.Size():
		return fmt.Errorf("region %s has %d bytes: there is nothing at offset %d", r.Name(), r.Size(), off)
	}
	p := newProgress(s, always)
	defer p.clear()
	begin := time.Now()
	at, buf := off, make([]byte, writeChunk)
	for {
		n, readErr := io.ReadFull(from, buf)
		if room := r.Size() - at; int64(n) > room {
			if err := r.Write(ctx, buf[:room], at); err != nil {
				return err
			}
			return fmt.Errorf("the input is longer than region %s: %d bytes were written, up to its end", r.Name(), r.Size()-off)
		}
		if n > 0 {
			if err := r.Write(ctx, buf[:n], at); err != nil {
				return fmt.Errorf("after %d bytes: %w", at-off, err)
			}
			at += int64(n)
			p.show("written", uint64(at-off), uint64(r.Size()-off))
		}
		if readErr == io.EOF || readErr == io.ErrUnexpectedEOF {
			break
		}
		if readErr != nil {
			return fmt.Errorf("after %d bytes of input: %w", at-off, readErr)
		}
	}
	const most = 1 << 30 // of a FLUSH
	for done := off; persist && done < at; done += most {
		if err := r.Persist(ctx, done, int(min(at-done, most))); err != nil {
			return err
		}
	}
	p.clear()
	if !quiet {
		fmt.Fprintln(s.err, rate(at-off, time.Since(begin)))
	}
	return nil
}
