// Package procfs reads what Linux's /proc shows of UDP sockets, of the
// processes that hold them, and of counters and settings, and what /sys shows
// of the processor's cache. The file system is a parameter, so that tests bring
// their own. On other systems it finds nothing.
package procfs
