package chakra

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Pack returns the files of all ranks as one text, that a scenario can have in
// it: each with its length in front, compressed by gzip, in base64. Files give
// the same text everywhere.
func Pack(files [][]byte) string {
	var text strings.Builder
	b := base64.NewEncoder(base64.StdEncoding, &text)
	z := gzip.NewWriter(b)
	for _, f := range files { // a strings.Builder takes all
		_, _ = z.Write(protowire.AppendVarint(nil, uint64(len(f))))
		_, _ = z.Write(f)
	}
	_ = z.Close()
	_ = b.Close()
	return text.String()
}

// Unpack returns the files of a text.
func Unpack(text string, l Limits) (files [][]byte, err error) {
	l = l.withDefaults()
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if err != nil {
		return nil, fmt.Errorf("chakra: it is no text that traces were packed into: %w", err)
	}
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(z, l.Bytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("chakra: traces that were packed are damaged: %w", err)
	case n > l.Bytes:
		return nil, fmt.Errorf("chakra: the traces are longer than %d bytes", l.Bytes)
	}
	for rest := b.Bytes(); len(rest) > 0; {
		f, n := protowire.ConsumeBytes(rest)
		if n < 0 {
			return nil, errors.New("chakra: traces that were packed are cut off")
		}
		files, rest = append(files, f), rest[n:]
	}
	return files, nil
}
