package agent

import "testing"

// Values that do not exist have a text, too.
func TestNames(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		StateEstablished.String(): "established",
		State(200).String():       "State(200)",
		EventRequest.String():     "request",
		EventKind(99).String():    "EventKind(99)",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
