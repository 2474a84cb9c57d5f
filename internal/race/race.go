// Package race tells tests whether they run under the race detector. It makes
// all ten to thirty times slower, and has pools drop what is put into them.
package race

// Enabled says whether the race detector is in this program.
const Enabled = enabled
