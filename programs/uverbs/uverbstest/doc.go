// Package uverbstest is what librxe, the user-space driver of Soft-RoCE, does
// with the queues that it shares with the kernel: it posts requests and polls
// completions. It is for tests, and knows the layouts by itself.
package uverbstest
