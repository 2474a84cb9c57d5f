// Package e2e holds tests that run whole programs over real sockets, among
// them the tests against kernel Soft-RoCE peers in guests (package
// e2e/guest). It has no code of its own.
package e2e
