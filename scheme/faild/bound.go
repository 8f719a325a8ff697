package faild

// Bound is a token bucket in thousandths: how many copies of ICMP errors are
// still sent (fl_ask_bound).
type Bound struct {
	Tokens uint64
	LastMS uint32
}

// take takes a token, of which rate come a second and as many are kept.
func (b *Bound) take(rate, now uint32) bool {
	b.Tokens = min(b.Tokens+uint64(now-b.LastMS)*uint64(rate), uint64(rate)*1000)
	b.LastMS = now
	if b.Tokens < 1000 {
		return false
	}
	b.Tokens -= 1000
	return true
}

// Asks bounds on one CPU what others are asked about: everything together, and
// each sender of errors to an eighth of that, since senders may be forged.
type Asks[S comparable] struct {
	// Rate is the copies a second.
	Rate    uint32
	All     Bound
	Senders map[S]*Bound
}

// Allow takes a token for an error of this sender at shared time now (ms).
func (a *Asks[S]) Allow(sender S, now uint32) bool {
	rate := max(a.Rate/8, 1)
	if one := a.Senders[sender]; one != nil {
		if !one.take(rate, now) {
			return false
		}
	} else {
		if a.Senders == nil {
			a.Senders = map[S]*Bound{}
		}
		a.Senders[sender] = &Bound{Tokens: uint64(rate-1) * 1000, LastMS: now}
	}
	return a.All.take(a.Rate, now)
}
