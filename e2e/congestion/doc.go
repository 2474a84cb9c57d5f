// Package congestion holds tests of congestion control over real sockets and a
// router of Linux that marks packets: internal/scripts/marking-net.sh, as the
// manual has an operator run it. It has no code of its own.
package congestion
