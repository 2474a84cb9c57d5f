package abi

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// layouts are the structs with their names in C, and their sizes up to the
// driver's part.
var layouts = []struct {
	c    string
	v    any
	size int
}{
	{"ib_uverbs_async_event_desc", AsyncEvent{}, 16},
	{"ib_uverbs_get_context", GetContextReq{}, 8},
	{"ib_uverbs_get_context_resp", GetContextResp{}, 8},
	{"ib_uverbs_query_device", QueryDeviceReq{}, 8},
	{"ib_uverbs_query_device_resp", QueryDeviceResp{}, 176},
	{"ib_uverbs_ex_query_device", ExQueryDeviceReq{}, 8},
	{"ib_uverbs_ex_query_device_resp", ExQueryDeviceResp{}, 304},
	{"ib_uverbs_odp_caps", OdpCaps{}, 24},
	{"ib_uverbs_query_port", QueryPortReq{}, 16},
	{"ib_uverbs_query_port_resp", QueryPortResp{}, 40},
	{"ib_uverbs_alloc_pd", AllocPDReq{}, 8},
	{"ib_uverbs_alloc_pd_resp", AllocPDResp{}, 4},
	{"ib_uverbs_dealloc_pd", DeallocPDReq{}, 4},
	{"ib_uverbs_reg_mr", RegMRReq{}, 40},
	{"ib_uverbs_reg_mr_resp", RegMRResp{}, 12},
	{"ib_uverbs_rereg_mr", ReregMRReq{}, 48},
	{"ib_uverbs_rereg_mr_resp", ReregMRResp{}, 8},
	{"ib_uverbs_dereg_mr", DeregMRReq{}, 4},
	{"ib_uverbs_alloc_mw", AllocMWReq{}, 16},
	{"ib_uverbs_alloc_mw_resp", AllocMWResp{}, 8},
	{"ib_uverbs_dealloc_mw", DeallocMWReq{}, 4},
	{"ib_uverbs_global_route", GlobalRoute{}, 24},
	{"ib_uverbs_ah_attr", AHAttr{}, 32},
	{"ib_uverbs_create_ah", CreateAHReq{}, 56},
	{"ib_uverbs_create_ah_resp", CreateAHResp{}, 4},
	{"rxe_create_ah_resp", CreateAHDriverResp{}, 8},
	{"ib_uverbs_destroy_ah", DestroyAHReq{}, 4},
	{"mminfo", MMInfo{}, 16},
	{"ib_uverbs_create_comp_channel", CreateCompChannelReq{}, 8},
	{"ib_uverbs_create_comp_channel_resp", CreateCompChannelResp{}, 4},
	{"ib_uverbs_create_cq", CreateCQReq{}, 32},
	{"ib_uverbs_ex_create_cq", ExCreateCQReq{}, 32},
	{"ib_uverbs_create_cq_resp", CreateCQResp{}, 8},
	{"ib_uverbs_ex_create_cq_resp", ExCreateCQResp{}, 16},
	{"ib_uverbs_resize_cq", ResizeCQReq{}, 16},
	{"ib_uverbs_resize_cq_resp", ResizeCQResp{}, 8},
	{"ib_uverbs_req_notify_cq", ReqNotifyCQReq{}, 8},
	{"ib_uverbs_destroy_cq", DestroyCQReq{}, 16},
	{"ib_uverbs_destroy_cq_resp", DestroyCQResp{}, 8},
	{"ib_uverbs_create_srq", CreateSRQReq{}, 32},
	{"ib_uverbs_create_xsrq", CreateXSRQReq{}, 48},
	{"ib_uverbs_create_srq_resp", CreateSRQResp{}, 16},
	{"rxe_create_srq_resp", CreateSRQDriverResp{}, 24},
	{"ib_uverbs_modify_srq", ModifySRQReq{}, 16},
	{"rxe_modify_srq_cmd", ModifySRQDriverReq{}, 8},
	{"ib_uverbs_query_srq", QuerySRQReq{}, 16},
	{"ib_uverbs_query_srq_resp", QuerySRQResp{}, 16},
	{"ib_uverbs_destroy_srq", DestroySRQReq{}, 16},
	{"ib_uverbs_destroy_srq_resp", DestroySRQResp{}, 4},
	{"ib_uverbs_qp_attr", QPAttr{}, 144},
	{"ib_uverbs_create_qp", CreateQPReq{}, 56},
	{"ib_uverbs_ex_create_qp", ExCreateQPReq{}, 64},
	{"ib_uverbs_create_qp_resp", CreateQPResp{}, 32},
	{"ib_uverbs_ex_create_qp_resp", ExCreateQPResp{}, 40},
	{"rxe_create_qp_resp", CreateQPDriverResp{}, 32},
	{"ib_uverbs_destroy_qp", DestroyQPReq{}, 16},
	{"ib_uverbs_destroy_qp_resp", DestroyQPResp{}, 4},
	{"ib_uverbs_qp_dest", QPDest{}, 32},
	{"ib_uverbs_query_qp", QueryQPReq{}, 16},
	{"ib_uverbs_query_qp_resp", QueryQPResp{}, 128},
	{"ib_uverbs_modify_qp", ModifyQPReq{}, 112},
	{"ib_uverbs_ex_modify_qp", ExModifyQPReq{}, 120},
	{"ib_uverbs_ex_modify_qp_resp", ExModifyQPResp{}, 8},
	{"ib_uverbs_post_send", PostSendReq{}, 24},
	{"ib_uverbs_post_send_resp", PostSendResp{}, 4},
	{"ib_uverbs_attach_mcast", McastReq{}, 24},
	{"ib_uverbs_detach_mcast", McastReq{}, 24},
}

// Structs are encoded without padding, so their sizes are those of C where
// every field is aligned by itself.
func TestSizes(t *testing.T) {
	for _, l := range layouts {
		if got := binary.Size(l.v); got != l.size {
			t.Errorf("%s: %d bytes are encoded, want %d", l.c, got, l.size)
		}
	}
}

// cName returns the name in C of a field of a struct.
func cName(c, field string) string {
	if field == "Sqd" {
		return map[string]string{"ib_uverbs_query_qp_resp": "sq_draining", "ib_uverbs_modify_qp": "en_sqd_async_notify"}[c]
	}
	return strings.ToLower(regexp.MustCompile(`(.)([A-Z])`).ReplaceAllString(field, "${1}_${2}"))
}

// offsets calls f with each field that has a name.
func offsets(typ reflect.Type, off int, f func(name string, off int)) {
	for i := range typ.NumField() {
		field := typ.Field(i)
		if field.Anonymous {
			offsets(field.Type, off, f)
		} else if field.Name != "_" {
			f(field.Name, off)
		}
		off += binary.Size(reflect.Zero(field.Type).Interface())
	}
}

// The C compiler has the same offsets. A struct of C may end with padding in
// front of the driver's part, which begins at its size here.
func TestLayoutOfC(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler (apt install gcc libc6-dev)")
	}
	if _, err := os.Stat("/usr/include/rdma/ib_user_verbs.h"); err != nil {
		t.Skip("there are no kernel headers (apt install linux-libc-dev)")
	}
	var src, want strings.Builder
	src.WriteString("#include <stdio.h>\n#include <stddef.h>\n#include <rdma/ib_user_verbs.h>\n#include <rdma/rdma_user_rxe.h>\nint main(void) {\n")
	for _, l := range layouts {
		offsets(reflect.TypeOf(l.v), 0, func(field string, off int) {
			name := cName(l.c, field)
			fmt.Fprintf(&src, "printf(\"%s.%s %%zu\\n\", offsetof(struct %s, %s));\n", l.c, name, l.c, name)
			fmt.Fprintf(&want, "%s.%s %d\n", l.c, name, off)
		})
	}
	src.WriteString("return 0; }\n")
	dir := t.TempDir()
	file, prog := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(src.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-o", prog, file).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	out, err := exec.Command(prog).Output()
	if err != nil {
		t.Fatal(err)
	}
	got, wanted := strings.Split(string(out), "\n"), strings.Split(want.String(), "\n")
	for i := range wanted {
		if i >= len(got) || got[i] != wanted[i] {
			t.Errorf("line %d: C has %q, we have %q", i, got[min(i, len(got)-1)], wanted[i])
		}
	}
}
