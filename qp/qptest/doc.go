// Package qptest tests package qp as a whole, without sockets and clocks. It
// has no code for users; everything is in its tests.
//
// # Scripts
//
// Every file testdata/*.script is a conversation between two queue pairs, a and
// b, that reads as prose. Its first line names the rule or the bug that it
// guards. Commands, then ----, then what they print, then a blank line:
//
//	# A lost acknowledgement: a duplicate (IBTA 9.7.5.1.4).
//	qp ab timeout=10
//	post a write id=1 len=8
//	deliver drop=b1
//	----
//	a> WRITE_ONLY psn=100 ackreq va=0x11000 rkey=b.m len=8 [8]
//	b> ACK psn=100 credits=0 msn=1  (lost)
//
// To write one, write the commands with ---- after each group, run
//
//	go test ./qp/qptest -run TestScripts -rewrite
//
// and read every line of what it filled in. After a change of package qp do the
// same, and commit only differences that are understood.
//
// Side a is QPN 0x11 at 10.0.0.1 and sends from PSN 100; b is QPN 0x22 at
// 10.0.0.2 and sends from PSN 200. Each has a region m of 128 KiB at 0x1000
// with all rights: up to 0x11000 a pattern, from there on zeros. Requests take
// local memory from 0x1000 and aim at 0x11000 of the peer; READs and atomics
// the other way round; receives are at 0x11000.
//
//	qp a|b|ab [state=rts] [mtu=1024] [psn= rqpsn=]
//	    [timeout=14 retry=7 rnr=7 rnrtimer=12] [rd=4 destrd=4] [access=wragp]
//	    [sendwr= recvwr= sendsge= recvsge= inline=]
//	    [window=PSNS windowbytes= chunk= probe=1ms] [keep=PACKETS]
//	    [cc=window|static|paper|adapter line=1000000000 burst=1] [cnp=50us]
//	    [cqe=N] [sigall] [srq] [type=uc|ud|xrci|xrct qkey=0x11111111]
//	clear
//	    takes both queue pairs away
//	mr b NAME at= len= access=lwragp [pd=other];  dereg b NAME
//	mw b NAME type=1|2 [pd=other];  fast b NAME [max=4096];  free b NAME
//	map b NAME at= len=
//	    a memory window, a fast registration region, and the memory that is
//	    mapped to that. b.w is the key that the window w has now, b.w/07 the
//	    one that ends in 0x07. Access b is to bind windows, z zero-based
//	post a OPERATION id= len= [at= to= rkey= lkey= sge=ADDR+LEN,…]
//	    [imm= inv= add= compare= swap=] [type=global level=range flush=64]
//	    [unsignaled] [solicited] [fence] [inline] [times=N]
//	    UD: [qkey= dqpn=]
//	    OPERATION: send, send-imm, send-inv, write, write-imm, read,
//	    read-inv, compare-swap, fetch-add, atomic-write or flush
//	post a bind-mw id= mw=b.w [key=07] region=NAME addr= len= [access=wr]
//	post a reg-mr id= fast=a.f key=07 [addr=0x700000] [access=lwra]
//	post a local-inv id= inv=a.w [unsignaled] [fence]
//	recv b id= len= [at= lkey= sge=] [times=N]
//	srq b [size=N] [limit=N]
//	    resizes and arms the shared receive queue of b (qp b srq), and shows it
//	xsrq b NUMBER [limit=N] [pd=other] [close]
//	    makes a queue of the XRC domain of the target b, shows it, or closes it;
//	    post a … srqn=1 names it, and recv b … srqn=1 posts to it
//	deliver [drop=a2,b1] [dup=] [swap=] [hold=] [mark=] [from=a] [n=3] [quiet]
//	    carries packets both ways until both sides are silent; a2 is the second
//	    packet that a sends in this command, a* all of a's, * all; hold keeps a
//	    packet until release; mark has it arrive with Congestion Experienced
//	release a
//	    delivers what hold kept of a's packets
//	advance 5ms [rules]
//	    moves the time; timers fire on the way, and what they cause is carried
//	inject a PACKET [src=ADDR] [marked]
//	    hands a packet to a as though its peer had sent it, in the notation of
//	    the output
//	modify a STATE [notify] [psn= rqpsn=] [access=]
//	cq a;  events a;  state a
//	    completions, asynchronous events, state and timer
//	persist b [fail] [again]
//	    what a FLUSH of b waits for is on its disk now
//	grh b ADDR
//	    the header at the start of a receive of UD
//	mem b ADDR LEN;  same a ADDR b ADDR LEN;  load b ADDR;  store b ADDR VALUE
//
// A queue pair without a peer talks to the script: what it sends is printed at
// once.
//
// # Worlds
//
// TestWorld plays seeded worlds in virtual time: one to three connections,
// random requests of random sizes in both directions at once, over a link that
// loses, doubles, delays, reorders and corrupts packets, with one deliberate
// fault in every third world. Half of the sides keep what comes after a gap,
// and half send several packets in a Poll. Packets pass the real encoder, ICRC
// and parser. A model says what must come out; checked are every completion
// (once, in order, right status, right data), exactly-once execution of SENDs,
// invalidations, atomics and ATOMIC WRITEs, that a FLUSH which completes has
// brought its bytes to the disk, memory outside of what was granted, every
// packet on the wire (sequence, retransmissions equal to the first
// transmission, limits of window and READ depth, fences, MSN), timers (none
// without work, no work without one), events, flushing, and the end: all
// requests done in bounded time. In some worlds corruption passes the ICRC;
// there only safety and termination are checked.
//
// A third of the sides have rates (DCQCN), and notifications of congestion come
// at intervals of all lengths.
//
// TestXRCWorld plays the same worlds with connections of XRC, in both
// directions: each target has up to three shared receive queues, and every
// request names one. SENDs with invalidate end real windows there, through
// which WRITEs go.
//
//	go test ./qp/qptest -run TestWorld -seeds=10000
//	go test ./qp/qptest -run TestWorld -seed=4711 -v
//
// plays many seeds, or replays one with its packets and completions.
//
// A seed that found a bug goes into foundSeeds.
//
// # Goodput
//
// TestGoodput compares the goodput against loss, and against a receive buffer
// that overflows, with and without marks of congestion, in virtual time with
// testdata/goodput.txt; -rewrite writes it. A change of the recovery shows up
// as a difference in numbers.
//
// # What is not tested here
//
// Concurrency, sockets, batching and real time: those belong to packages hca,
// transport and e2e.
package qptest
