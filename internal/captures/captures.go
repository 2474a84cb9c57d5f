// Package captures reads capture files for tests, itself and with Wireshark's
// tshark.
package captures

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

// File returns the frames of a capture file and what they begin with.
func File(t testing.TB, name string) ([][]byte, layers.LinkType) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return Frames(t, f)
}

// Frames returns the frames of a capture, pcap or pcapng, and what they begin
// with.
func Frames(t testing.TB, capture io.Reader) ([][]byte, layers.LinkType) {
	t.Helper()
	r, err := open(bufio.NewReader(capture))
	if err != nil {
		t.Fatalf("not a capture: %v", err)
	}
	var frames [][]byte
	for {
		b, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return frames, r.LinkType()
		}
		if err != nil {
			t.Fatalf("frame %d: %v", len(frames)+1, err)
		}
		frames = append(frames, b)
	}
}

type reader interface {
	gopacket.PacketDataSource
	LinkType() layers.LinkType
}

func open(b *bufio.Reader) (reader, error) {
	const nextGeneration = "\x0a\x0d\x0d\x0a" // type of the first block of pcapng
	if magic, err := b.Peek(len(nextGeneration)); err == nil && string(magic) == nextGeneration {
		return pcapgo.NewNgReader(b, pcapgo.DefaultNgReaderOptions)
	}
	return pcapgo.NewReader(b)
}

// Tshark has tshark show the fields named by fields ("infiniband.bth.opcode")
// for every frame of a capture file. options go before them. It skips the test
// where tshark is not installed, or programs are not asked for.
func Tshark(t *testing.T, file string, options, fields []string) [][]string {
	t.Helper()
	if os.Getenv("ROCEV2_E2E") == "" {
		t.Skip("tshark looks at captures with ROCEV2_E2E=1 (make test-kernel)")
	}
	bin, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed (on Debian: apt-get install tshark)")
	}
	// Its guess that payloads are RPC over RDMA finds those malformed.
	args := append([]string{"-n", "-r", file, "--disable-protocol", "rpcordma", "-T", "fields"}, options...)
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	out, err := exec.CommandContext(t.Context(), bin, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]string
	for line := range strings.Lines(string(out)) {
		frames = append(frames, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return frames
}
