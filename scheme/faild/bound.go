package faild

import "github.com/fairlead/fairlead/scheme/bound"

// Asks bounds on one CPU what others are asked about: everything together, and
// each sender of errors, by IPv4 address or IPv6 prefix of 64 bits, to an eighth
// of that, since senders may be forged. (A balancer allows one sender a third: it
// asks only about what is cut off.)
type Asks[S comparable] struct {
	// Rate is the copies a second.
	Rate    uint32
	All     bound.Bound
	Senders map[S]*bound.Bound
}

// Allow takes a token for an error of this sender at shared time now (ms).
func (a *Asks[S]) Allow(sender S, now uint32) bool {
	rate := max(a.Rate/8, 1)
	if one := a.Senders[sender]; one != nil {
		if !one.Take(rate, now) {
			return false
		}
	} else {
		if a.Senders == nil {
			a.Senders = map[S]*bound.Bound{}
		}
		a.Senders[sender] = &bound.Bound{Tokens: uint64(rate-1) * 1000, LastMS: now}
	}
	return a.All.Take(a.Rate, now)
}
