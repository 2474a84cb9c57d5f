package dissect_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/pcapgo"

	"github.com/gosoftroce/rocev2/observe/dissect"
)

// An interface has the name, the comment and the snapshot length that it was
// given; another reader finds them.
func TestWriterDescribesInterfaces(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := dissect.NewWriter(&b)
	if err := w.Interface(dissect.LinkEthernet, "h3", "no ICRC", 100); err != nil {
		t.Fatal(err)
	}
	if err := w.Interface(dissect.LinkEthernet, "again", "", 0); err == nil {
		t.Error("an interface was described twice")
	}
	if err := w.Interface(dissect.LinkRaw, strings.Repeat("x", 5000), "", 0); err == nil {
		t.Error("a name of 5000 bytes was taken")
	}
	f := dissect.Frame{Time: time.Unix(0, 1234).UTC(), Link: dissect.LinkEthernet, Data: make([]byte, 61), Length: 1000}
	if err := w.Write(&f); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(bytes.NewReader(b.Bytes()), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	data, info, err := r.ReadPacketData()
	if err != nil || len(data) != 61 || info.Length != 1000 || info.Timestamp.UnixNano() != 1234 {
		t.Errorf("%v, %d bytes, %+v", err, len(data), info)
	}
	i, err := r.Interface(0)
	if err != nil || i.Name != "h3" || i.Comment != "no ICRC" || i.SnapLength != 100 {
		t.Errorf("%v, %+v", err, i)
	}
}
