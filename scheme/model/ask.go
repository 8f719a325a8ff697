package model

import (
	"net/netip"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
)

// AskSources is how many bounds the senders of ICMP errors share.
const AskSources = 1 << 10

// askBytes is the longest packet that is copied to all servers.
const askBytes = 256

// ask hands the packet to the daemon, which copies it to all servers.
func (t *Tables) ask(s *State, r *Result, k *packet, nowMS uint32) {
	kind := 0
	if r.Reason == bpf.AskICMP {
		kind = 1
	}
	r.Verdict = Drop
	if k.TotalLen > askBytes || kind == 1 && !s.AskSources[t.askSource(k.Src)].Take((t.AskRate+2)/3, nowMS) ||
		!s.Asks[kind].Take(t.AskRate, nowMS) {
		r.Reason = bpf.DropAskLimit
		return
	}
	r.Ask = k.Packet()
}

// askSource is the bound of an error's sender, who may use a third of what all
// may: of its address, or of its IPv6 prefix of 64 bits (fl_ask_source).
func (t *Tables) askSource(sender netip.Addr) uint64 {
	if sender.Is6() {
		sender = netip.PrefixFrom(sender, 64).Masked().Addr()
	}
	return hash.Tuple(t.AskKey, netip.AddrPortFrom(sender, 0), 0) >> 54
}
