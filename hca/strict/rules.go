package strict

// Rule is a rule of strict mode.
type Rule uint8

// The rules, in the order of the table.
const (
	Unsignaled Rule = iota
	CQOverrun
	RNRRetry
	NoReceive
	StaleKey
	BadAccess
	AtomicAlign
	Fork
	SendChanged
	EarlyRead
	LastByte
	SharedPage
	NumRules
)

// Info describes a rule.
type Info struct {
	Name    string // for settings, errors and reports
	Finds   string // what a program does wrong
	Adapter string // what an adapter does then
	Here    string // what is done here
	Source  string // where that is said

	// Optional rules are off unless they are named: they cost much, or
	// find what is often meant so.
	Optional bool

	// Except names the profiles of adapters that do not have the rule.
	Except []string
}

// Rules has what each rule is.
var Rules = [NumRules]Info{
	Unsignaled: {
		Name:    "unsignaled",
		Finds:   "The send queue is full of requests of which none asks for a completion.",
		Adapter: "A slot is free only after the completion of a later signaled request was polled. So the queue stays full for ever: `ibv_post_send` fails with ENOMEM.",
		Here:    "`PostSend` refuses with `ErrQueueFull`, and reports.",
		Source:  "IBTA volume 1, 10.8.6 (unsignaled completions); rdma-core `providers/mlx5/qp.c`, `mlx5_wq_overflow`: the tail of the queue moves when a completion is polled",
		Except:  []string{"rxe"},
	},
	CQOverrun: {
		Name:    "cq-overrun",
		Finds:   "A completion finds its completion queue full.",
		Adapter: "The completion queue is in error and takes no more completions. Its queue pairs end in ERR. The event is CQ_ERR.",
		Here:    "The queue and all queue pairs that complete to it end so, and it is reported.",
		Source:  "IBTA volume 1, 11.6.3.2 (CQ error); `ibv_get_async_event(3)`: IBV_EVENT_CQ_ERR, CQ is in error (CQ overrun)",
	},
	RNRRetry: {
		Name:    "rnr-retry",
		Finds:   "The peer had no receive for a message, and the retries for that (rnr_retry, perhaps 0) are used up.",
		Adapter: "The request completes with RNR_RETRY_EXC_ERR, and the queue pair is in ERR.",
		Here:    "The same, and it is reported.",
		Source:  "IBTA volume 1, 9.7.5.2.8 (RNR NAK); `ibv_modify_qp(3)`, rnr_retry: 7 means for ever",
	},
	NoReceive: {
		Name:    "no-receive",
		Finds:   "A message came and no receive was posted.",
		Adapter: "RC answers with an RNR NAK: each costs the sender at least the min_rnr_timer, and an error where it does not retry. UD and UC lose the message.",
		Here:    "The same, and it is reported.",
		Source:  "IBTA volume 1, 9.7.5.2.8 (RNR NAK), 9.8.3 (unreliable services)",
	},
	StaleKey: {
		Name:    "stale-key",
		Finds:   "A request names a key of memory that was deregistered, or of a window that was invalidated.",
		Adapter: "LOC_PROT_ERR for an own lkey, REM_ACCESS_ERR at the peer for an rkey. An adapter gives keys again: then the request reaches other memory.",
		Here:    "The same errors, always, for keys are not given again soon. It is reported with the key.",
		Source:  "IBTA volume 1, 11.2.8.4 (deregistration), 11.6.2 (completion status)",
	},
	BadAccess: {
		Name:    "bad-access",
		Finds:   "A request names memory that is not registered, another protection domain, or goes beyond the region or its rights.",
		Adapter: "LOC_PROT_ERR for own memory, REM_ACCESS_ERR for memory of the peer. Both queue pairs end in ERR.",
		Here:    "The same, and it is reported with key, address and length.",
		Source:  "IBTA volume 1, 9.7.4.1.5 (R_Key validation), 11.6.2 (completion status)",
	},
	AtomicAlign: {
		Name:    "atomic-align",
		Finds:   "An atomic is at an address that is not a multiple of 8.",
		Adapter: "The responder answers with a NAK for an invalid request: REM_INV_REQ_ERR. Both queue pairs end in ERR.",
		Here:    "The same, and it is reported with the address.",
		Source:  "IBTA volume 1, 9.4.5.1 (the address of an atomic is aligned to 8 bytes)",
	},
	Fork: {
		Name:    "fork",
		Finds:   "A child of fork(2) uses a device that its parent has opened.",
		Adapter: "The child has neither the mappings of the queues nor the registered memory where that was protected (`ibv_fork_init`), or shares both with the parent, unordered: it crashes, or damages the parent's queues.",
		Here:    "Posts, polls and commands fail with EIO, and it is reported. Unmodified programs only.",
		Source:  "`ibv_fork_init(3)`, `fork(2)`",
	},
	SendChanged: {
		Name:     "send-changed",
		Finds:    "The memory of a SEND or WRITE changes between its post and its completion.",
		Adapter:  "It reads the memory when it sends, and again when it sends again: the peer gets the old bytes, the new ones, or some of both.",
		Here:     "The first MiB is summed up (CRC-32C) at the post and at the completion, and a difference is reported. A peer that writes to the memory meanwhile makes one, too.",
		Source:   "`ibv_post_send(3)`: buffers can be reused after the completion was retrieved; IBTA volume 1, 10.8.3 (ordering)",
		Optional: true,
	},
	EarlyRead: {
		Name:     "early-read",
		Finds:    "A program uses memory of a receive, a READ or an atomic before its completion.",
		Adapter:  "There may be anything: the bytes before, the message, a part of it.",
		Here:     "The memory (its first 64 KiB) is filled with 0xdb when the request is posted, so that the program fails. What the message does not write is restored at the completion, and all of it if the request fails or is not posted after all. What a peer writes there meanwhile stays. Nothing is reported. Receives of shared queues and of unmodified programs have no poison.",
		Source:   "`ibv_post_recv(3)`, `ibv_post_send(3)`: buffers can be reused after the completion was retrieved",
		Optional: true,
	},
	LastByte: {
		Name:     "last-byte",
		Finds:    "A program waits for the last byte of a WRITE in memory, and takes the others for written.",
		Adapter:  "The order in which the bytes of a message come to memory is not defined: with relaxed ordering of PCIe, or packets that are placed as they come, the last ones may be first.",
		Here:     "The last cache line (64 bytes) of each packet is in memory some ten microseconds before the rest of that, in regions with remote write that are not of a file. Nothing is reported: the program fails.",
		Source:   "IBTA volume 1, 9.5 (transaction ordering); `ibv_reg_mr(3)`, IBV_ACCESS_RELAXED_ORDERING; NVIDIA, Out-of-order Data Placement (docs.nvidia.com/doca/sdk)",
		Optional: true,
	},
	SharedPage: {
		Name:     "shared-page",
		Finds:    "A region begins or ends inside a page, which other memory of the program shares.",
		Adapter:  "Memory is pinned, counted (`ulimit -l`) and, after `ibv_fork_init`, taken away from a child by whole pages: a child that touches its neighbours in the page crashes.",
		Here:     "It is reported when the region is made.",
		Source:   "`ibv_fork_init(3)`; `madvise(2)`, MADV_DONTFORK",
		Optional: true,
	},
}

// String returns the name.
func (r Rule) String() string {
	if r < NumRules {
		return Rules[r].Name
	}
	return "unknown rule"
}

// ruleNamed returns the rule with a name.
func ruleNamed(name string) (Rule, bool) {
	for r := range NumRules {
		if Rules[r].Name == name {
			return r, true
		}
	}
	return 0, false
}
