// Package layering has the tests of the structure: which package may import
// which, what the pure packages must not use, and how large files, functions,
// types and comments may be. It has no code of its own.
package layering
