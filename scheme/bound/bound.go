// Package bound is the token bucket by which balancers and servers bound what
// they ask others about: fl_take_token of bpf/lb/ask.h, fl_ask_token of
// bpf/host/scheme_faild.h. No clock of its own.
package bound

// Bound is one bucket, in thousandths of tokens. The zero Bound is full once
// the clock has gone on for a second.
type Bound struct {
	Tokens uint64
	LastMS uint32
}

// Take takes a token at shared time nowMS; false: none is left. rate is tokens
// a second, and as many are kept at most.
func (b *Bound) Take(rate, nowMS uint32) bool {
	b.Tokens = min(b.Tokens+uint64(nowMS-b.LastMS)*uint64(rate), uint64(rate)*1000)
	b.LastMS = nowMS
	if b.Tokens < 1000 {
		return false
	}
	b.Tokens -= 1000
	return true
}
