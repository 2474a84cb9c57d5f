// Package procfs reads what Linux's /proc shows of UDP sockets, of the
// processes that hold them, and of counters and settings. The file system is a
// parameter, so that tests bring their own. On other systems it finds nothing.
package procfs
