package rdma_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/rdma"
)

// A message is the program's until Release, also when the connection, and with
// it the last one that uses the device, is closed meanwhile.
func TestMessageAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		l, d := listener(t, rdma.ListenConfig{})
		client, server := connect(t, l, d)
		text := bytes.Repeat([]byte("rdma"), 1000)
		must(t, server.Send(ctx, text))
		must(t, client.Send(ctx, text))
		here, err := client.RecvMsg(ctx)
		must(t, err)
		there, err := server.RecvMsg(ctx)
		must(t, err)
		b, err := client.Buffer(ctx)
		must(t, err)
		must(t, client.Close())
		must(t, l.Close())
		for _, m := range []rdma.Message{here, there} {
			if !bytes.Equal(m.Bytes(), text) {
				t.Error("the message has changed")
			}
			m.Release()
		}
		clear(b.Bytes())
		b.Discard()
	})
}

// A Stream that is read in pieces smaller than what arrives: each byte comes
// once and in order, and nothing is kept that a Close would take away.
func TestStreamInPieces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, d := listener(t, rdma.ListenConfig{})
		client, server := connect(t, l, d)
		const n = 20_000
		go func() {
			s := server.Stream()
			for i := range n { // of all lengths, so that some are packed
				if _, err := s.Write(bytes.Repeat([]byte{byte(i)}, 1+i%7)); err != nil {
					t.Error(err)
					return
				}
			}
			s.CloseWrite()
		}()
		s := client.Stream()
		var got []byte
		for size := 1; ; size = 1 + size%11 {
			b := make([]byte, size)
			k, err := s.Read(b)
			got = append(got, b[:k]...)
			if err == io.EOF {
				break
			}
			must(t, err)
		}
		var want []byte
		for i := range n {
			want = append(want, bytes.Repeat([]byte{byte(i)}, 1+i%7)...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes came, or others; want %d", len(got), len(want))
		}
	})
}

// A stream that was cut off is told from one that is complete.
func TestStreamThatIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			why   string
			close func(*rdma.Conn) error
			want  error
		}{
			{"the stream is closed", func(c *rdma.Conn) error { return c.Stream().Close() }, io.EOF},
			{"its end was said, and the connection closed", func(c *rdma.Conn) error { c.Stream().CloseWrite(); return c.Close() }, io.EOF},
			{"its end was said twice", func(c *rdma.Conn) error { c.Stream().CloseWrite(); return c.Stream().Close() }, io.EOF},
			{"the connection alone is closed", (*rdma.Conn).Close, io.ErrUnexpectedEOF},
		} {
			l, d := listener(t, rdma.ListenConfig{})
			client, server := connect(t, l, d)
			_, err := server.Stream().Write([]byte("some"))
			must(t, err)
			must(t, c.close(server))
			got := make([]byte, 4)
			_, err = io.ReadFull(client.Stream(), got)
			must(t, err)
			if string(got) != "some" {
				t.Errorf("%s: %q came", c.why, got)
			}
			if n, err := client.Stream().Read(got); n != 0 || !errors.Is(err, c.want) {
				t.Errorf("%s: Read returns %d, %v; want %v", c.why, n, err, c.want)
			}
		}
	})
}
