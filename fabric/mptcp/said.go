package mptcp

import "time"

// What was said is not said again within sayAgain: many connections have one
// cause to complain. Of more than mostSaid things at a time none is said.
const (
	sayAgain = time.Minute
	mostSaid = 256
)

// said is what was said lately, and when.
type said map[string]time.Time

// first tells whether it is to be said now.
func (s said) first(text string, now time.Time) bool {
	if at, ok := s[text]; ok && now.Sub(at) < sayAgain {
		return false
	}
	if len(s) >= mostSaid {
		for text, at := range s {
			if now.Sub(at) >= sayAgain {
				delete(s, text)
			}
		}
	}
	if len(s) >= mostSaid {
		return false
	}
	s[text] = now
	return true
}
