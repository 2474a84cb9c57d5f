// Package foreign has tests that run tests of the product as programs of other
// systems and processors: of Windows under Wine, and of other processors under
// QEMU's user-mode emulation.
package foreign
