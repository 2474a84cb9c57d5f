// Package layering has the tests of the structure: which package may import
// which, which houses they stand in, what the pure packages must not use, how
// large files, functions, types and comments may be, and how many folders are
// at the top. It has no code of its own.
package layering
