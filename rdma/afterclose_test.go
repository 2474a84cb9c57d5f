package rdma_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/gosoftroce/rocev2/rdma"
)

// A message is the program's until Release, also when the connection, and with
// it the last one that uses the device, is closed meanwhile.
func TestMessageAfterClose(t *testing.T) {
	t.Parallel()
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
}

// A Stream that is read in pieces smaller than what arrives: each byte comes
// once and in order, and nothing is kept that a Close would take away.
func TestStreamInPieces(t *testing.T) {
	t.Parallel()
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
}
