package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testprogram"
	"github.com/gosoftroce/rocev2/rdma"
)

// What one process puts another one gets, also when many write at once.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	kv := testprogram.Build(t)
	addr, _ := testprogram.Addresses()
	addr += ":7471"
	kv.Start(addr, "serve", addr)
	kv.Output("put", addr, "colour", "red")
	kv.Output("put", addr, "colour", "blue")
	if got := kv.Output("get", addr, "colour"); got != "blue\n" {
		t.Errorf("got %q", got)
	}
	if _, out, err := kv.Run("get", addr, "size"); err == nil || !strings.Contains(out, `no key "size"`) {
		t.Errorf("a key that nobody has put: %q (%v)", out, err)
	}
	errs := make(chan error)
	const writers, each = 4, 200
	for w := range writers {
		go func() {
			errs <- client(t.Context(), &rdma.Dialer{}, addr, func(s *store) error {
				for i := range each {
					if err := s.put("shared", strings.Repeat(fmt.Sprint(w), 1+i%100)); err != nil {
						return err
					}
					value, err := s.get("shared")
					if err != nil {
						return err
					}
					if value == "" || strings.Trim(value, value[:1]) != "" {
						return fmt.Errorf("a value of two writers: %q", value)
					}
				}
				return nil
			})
		}()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
