package main

import (
	"bytes"
	"crypto/rand"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/rdma/rdmanet"
)

func TestGet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want := make([]byte, 3<<20)
	rand.Read(want)
	if err := os.WriteFile(filepath.Join(dir, "file"), want, 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := rdmanet.Listen("rdma", "127.80.1.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go http.Serve(ln, http.FileServer(http.Dir(dir)))
	url := "http://" + ln.Addr().String()
	var got bytes.Buffer
	if err := get(&got, url+"/file"); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
	if err := get(&got, url+"/missing"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a missing file: %v", err)
	}
	client.CloseIdleConnections()
}
