package main

import (
	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/programs/interop/perftest"
)

// Why options of perftest do not apply to any test here.
const (
	whyDC       = "there are no dynamic connections (DC)"
	whyOnePort  = "a device has one port"
	whyRate     = "--rate_limit is in bits on the wire, and how much goes at once follows from it"
	whyCrypto   = "there is no encryption offload"
	whyMemory   = "buffers are anonymous memory, registered as a whole"
	whyTimes    = "the times go into a histogram: the table and --json have minimum, percentiles and maximum"
	whyMcast    = "these tests send to one peer, not to a multicast group"
	whyCounters = "this device has no counters in the kernel: use --stats"
)

var foreignPerf = []foreign{
	{"dualport", "O", false, whyOnePort},
	{"report-per-port", "", false, whyOnePort},
	{"report-both", "", false, "the report is the sum of both directions, as without this option"},
	{"reversed", "", false, "start the server on the other host instead"},
	{"hop_limit", "L", true, "this tool sends with a hop limit of 64"},
	{"dlid", "", true, "Ethernet has no LIDs"},
	{"dont_xchg_versions", "", false, "the protocol always exchanges versions"},
	{"ipv6", "", false, "the device decides the IP version: choose an IPv6 address with -d"},
	{"report-counters", "W", true, whyCounters},
	{"cpu_util", "", false, "this tool does not measure processor use: use time or top"},
	{"perform_warm_up", "", false, "there is no separate warm-up: use -D, which does not measure the start and the end"},
	{"wait_destroy", "", true, "this tool always frees resources at once"},
	{"mmap", "", true, whyMemory},
	{"mmap-offset", "", true, whyMemory},
	{"odp", "", false, whyMemory},
	{"use_hugepages", "", false, whyMemory},
	{"log_dci_streams", "", true, whyDC},
	{"log_active_dci_streams", "", true, whyDC},
	{"aes_xts", "", false, whyCrypto},
	{"encrypt_on_tx", "", false, whyCrypto},
	{"sig_before", "", false, whyCrypto},
	{"aes_block_size", "", true, whyCrypto},
	{"data_enc_keys_number", "", true, whyCrypto},
	{"kek_path", "", true, whyCrypto},
	{"credentials_path", "", true, whyCrypto},
	{"data_enc_key_app_path", "", true, whyCrypto},
	{"burst_size", "", true, whyRate},
	{"typical_pkt_size", "", true, whyRate},
	{"rate_limit_type", "", true, whyRate},
	{"vector", "X", true, "this tool's devices have one shard, and so one completion vector"},
	{"inline_recv", "", true, "receives are never inline"},
	{"mcg", "g", false, whyMcast},
	{"MGID", "M", true, whyMcast},
	{"report-cycles", "C", false, "times are in microseconds"},
	{"report-histogram", "H", false, whyTimes},
	{"report-unsorted", "U", false, whyTimes},
	{"latency_gap", "", true, "each operation always follows the one before at once"},
}

// Why options of other tests do not apply to one.
var (
	foreignLatency = []foreign{
		{"qp", "q", true, "a latency test has one queue pair"},
		{"tx-depth", "t", true, "a latency test has one operation outstanding"},
		{"cq-mod", "Q", true, "every operation of a latency test has its own completion"},
		{"bidirectional", "b", false, "a latency test has no bidirectional form"},
		{"report_gbits", "", false, "a latency test reports microseconds"},
		{"noPeak", "N", false, "a latency test reports no bandwidth"},
		{"no_peak", "", false, "a latency test reports no bandwidth"},
		{"limit_bw", "w", true, "a latency test reports no bandwidth"},
		{"limit_msgrate", "y", true, "a latency test reports no message rate"},
		{"post_list", "l", true, "a latency test posts one operation at a time"},
		{"recv_post_list", "", true, "a latency test posts one operation at a time"},
		{"run_infinitely", "", false, "perftest has it for bandwidth only"},
	}
	foreignTest = []foreign{
		{"rx-depth", "r", true, "only SEND (send_bw, send_lat) uses receives"},
		{"recv_post_list", "", true, "only SEND (send_bw) uses receives"},
		{"use-srq", "", false, "only SEND (send_bw, send_lat) uses receives"},
		{"inline_size", "I", true, "only SEND and WRITE can carry their data in the work request"},
		{"outs", "o", true, "only READ and atomics have a limit of their own for outstanding operations"},
		{"atomic_type", "A", true, "only the atomic tests have it"},
		{"size", "s", true, "atomic operations are on 8 bytes"},
		{"all", "a", false, "atomic operations are on 8 bytes"},
		{"events", "e", false, "write_lat watches memory: there are no events to sleep on"},
	}
)

// registerForeign makes all options of perftest known to the command of one
// test.
func registerForeign(cmd *cobra.Command, t perftest.Test) {
	fs := cmd.Flags()
	for name, c := range map[string]choiceFlag{
		"force-link": {[]string{"Ethernet"}, "the link is Ethernet"},
		"pkey_index": {[]string{"0"}, "the device has one partition key, number 0"},
	} {
		fs.Var(c, name, "accepted for compatibility")
		fs.MarkHidden(name)
	}
	accept(cmd, "use_old_post_send", "disable_pcie_relaxed", "mr_per_qp")
	if t.Kind == perftest.Latency {
		refuse(cmd, foreignLatency)
	}
	refuse(cmd, foreignTest)
	refuse(cmd, foreignPerf)
}

var foreignPingpong = []foreign{
	{"odp", "o", false, whyMemory},
	{"iodp", "O", false, whyMemory},
	{"prefetch", "P", false, whyMemory},
	{"ts", "t", false, "there are no hardware timestamps"},
	{"dm", "j", false, "there is no device memory"},
}
