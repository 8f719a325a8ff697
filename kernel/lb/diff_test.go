package lb

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// The program and its Go model are held together here: the same tables, the
// same packets, the same clock, and every step must agree in verdict, reason,
// server, output and in what is left behind.

// Thousands of packets, good and hostile, against many random tables.
func TestProgramAgreesWithModel(t *testing.T) {
	seen := map[bpf.Reason]int{}
	var sum model.Counters
	packets, hits, told, kept := 0, map[string]int{}, 0, 0
	refused, all := 0, 0 // openings that went by held; entries made because the VIP tracks all
	for seed := range soak.Seeds(t, 24) {
		p := newPair(t, seed)
		for n := range 2500 {
			if n == 1250 {
				// From here on with the tables and the state that are read
				// back from the program's maps, as trace does.
				sum = added(sum, p.state)
				p.reread()
			}
			r := p.step(p.h.frame())
			seen[r.Reason]++
			packets++
			if r.Flow != nil && r.Flow.Found {
				if r.Flow.Outcome == jet.Stale {
					hits[fmt.Sprint(r.Flow.Event, " Stale")]++
				} else {
					hits[fmt.Sprint(r.VIP.Scheme, " ", r.Flow.Event, " Hit")]++
				}
			}
			if f := r.Flow; f != nil && f.Found && f.TCP && f.Line == jet.Closed {
				// An RST, and then, soon or late, a SYN.
				c := wire.TCP{Src: netip.AddrPortFrom(r.Parsed.Src, r.Parsed.SrcPort), Dst: netip.AddrPortFrom(r.Parsed.Dst, r.Parsed.DstPort), Flags: wire.RST}
				p.step(c.Frame())
				switch p.h.IntN(3) {
				case 0:
					p.tick()
				case 1:
					p.wait((uint32(jet.Fading.Idle()) + 1) << 10) // a forged one would be forgotten
				}
				c.Flags = wire.SYN
				if f := p.step(c.Frame()).Flow; f != nil && f.Found && f.Entry.State() == jet.Fading && f.Line == jet.Closed {
					hits[fmt.Sprint("opens what fades ", f.Outcome)]++
				}
			}
			if r.Share != nil {
				told++
			}
			if f := r.Flow; f != nil && f.Enters && f.Event == jet.Open && f.Inserted == jet.Full && r.Slot != r.Place.Slot {
				refused++
			}
			if r.Tracked && r.VIP.TrackAll && r.VIP.Scheme != vip.FullCT && !r.Place.Track {
				all++
			}
			if r.VIP != nil && r.VIP.Scheme == vip.Beamer {
				hits[beamerCase(r)]++
			}
			hits[migrationCase(r)]++
			if r.Seat != nil {
				hits[seatCase(r)]++
			}
			if what := steerCase(p.h.tables, r); what != "" {
				hits[what]++
			}
			if p.h.IntN(4) == 0 {
				p.tick()
			}
			switch p.h.IntN(150) {
			case 0:
				p.told()
			case 1:
				p.swept()
			case 2:
				p.h.change()
				p.fill()
			case 3, 4, 5:
				p.named(func(r model.Result) { hits[migrationCase(r)]++ })
			}
		}
		p.sameState()
		sum = added(sum, p.state)
		kept += p.kept
	}
	t.Logf("%d packets: %v", packets, seen)
	t.Logf("counted %+v; told %d, kept %d; refused openings held elsewhere %d; tracked as all are %d; entries found, by scheme and event: %v",
		sum, told, kept, refused, all, hits)
	for r := bpf.PassNotIP; r <= bpf.Known; r++ {
		// A test run has room enough for every header. TestRatesAgreeWithModel meets the
		// limits.
		if seen[r] == 0 && r != bpf.DropHeadroom && (r < bpf.DropRateConnection || r > bpf.DropRateNew) {
			t.Errorf("no packet came to %v: the generator is too tame", r)
		}
	}
	if sum.FlowFull == 0 || sum.FlowReplaced == 0 || told == 0 {
		t.Errorf("no full bucket, none replaced or none told: the generator is too tame")
	}
	if refused == 0 || all == 0 || kept == 0 {
		t.Errorf("no refused opening, no VIP that tracks all or no own entry that stayed: the generator is too tame")
	}
	for _, what := range []string{"migrates: found", "migrates: opened where it was", "migrates: opened elsewhere", "migrates: entered", "seat taken", "seat none", "seat wrong", "seat new data",
		"opens what fades 0", "opens what fades 1", "beamer settled ipip", "beamer moved ipip", "beamer moved gue", "beamer l2", "beamer join", "beamer quoted fragment forwarded", "beamer quoted fragment asked",
		"steered over IPv4", "steered over IPv6", "steered by the hash", "steered with hops", "not steered by this program"} {
		if hits[what] == 0 {
			t.Errorf("no %s: the generator is too tame", what)
		}
	}
	for event := jet.Open; event <= jet.Peek; event++ {
		for _, what := range []string{"cheetah %d Hit", "jet %d Hit", "full-ct %d Hit", "%d Stale"} {
			if what = fmt.Sprintf(what, event); hits[what] == 0 {
				t.Errorf("no %s: the generator is too tame", what)
			}
		}
	}
}

// steerCase says how a packet to a steered line was spread, "" for others.
func steerCase(t *model.Tables, r model.Result) string {
	if r.Verdict != model.Send || r.Line < 0 || r.Hash == 0 {
		return ""
	}
	l := t.Lines[r.Line]
	switch {
	case l.Steer == nil || !l.Forwarding.Row().Steers():
		return ""
	case !t.Steering:
		return "not steered by this program"
	case l.Steer[r.Hash>>44&63] == model.Spread{}:
		return "steered by the hash"
	case r.Hops != nil:
		return "steered with hops"
	case l.Addr.Is6():
		return "steered over IPv6"
	}
	return "steered over IPv4"
}

// beamerCase says what scheme beamer did with a packet.
func beamerCase(r model.Result) string {
	quotedFragment := r.Parsed.Quoted != nil && r.Parsed.Quoted.FragmentOffset != 0
	switch {
	case quotedFragment && r.Reason == bpf.ForwardFragment:
		return "beamer quoted fragment forwarded"
	case quotedFragment && r.Reason == bpf.AskICMP:
		return "beamer quoted fragment asked"
	case r.Verdict != model.Send || r.Ifindex == 0:
		return "beamer not forwarded"
	case r.Join:
		return "beamer join"
	}
	_, o, err := wire.Decapsulate(wire.Parse(r.Output).Packet())
	switch {
	case err != nil || o.Hops == nil:
		return "beamer l2"
	case len(o.Hops.Chain()) > 0:
		return "beamer moved " + string(o.Tunnel)
	}
	return "beamer settled " + string(o.Tunnel)
}

func added(sum model.Counters, s *model.State) model.Counters {
	for id := range s.CPU {
		c := s.Counters(id)
		sum.FlowFull += c.FlowFull
		sum.FlowReplaced += c.FlowReplaced
		sum.Tracked += c.Tracked
		sum.FlowHits += c.FlowHits
	}
	return sum
}

// migrationCase is what an entry was to a packet that a cookie would have placed.
func migrationCase(r model.Result) string {
	if r.VIP == nil || !r.VIP.Migrates || r.Flow == nil || r.VIP.Scheme.Row().Finds != vip.ByCookie {
		return ""
	}
	switch {
	case r.FlowHit && r.Reason == bpf.Known:
		return "migrates: found"
	case r.FlowHit && r.Reason == bpf.ForwardNew:
		return "migrates: opened where it was"
	case r.Reason == bpf.ForwardNew && r.Flow.Found && r.VIP.Policy != policy.Hash:
		return "migrates: opened elsewhere"
	case r.Reason == bpf.ForwardNew && r.Tracked:
		return "migrates: entered"
	}
	return ""
}

// Frames of each kind, cut at every byte and with every header byte changed
// to the values that trip parsers.
func TestEveryByteCutAndChanged(t *testing.T) {
	for seed := uint64(20); seed < 24; seed++ {
		p := newPair(t, seed)
		for range 25 {
			f := p.h.good()
			f = f[:min(len(f), maxRun)]
			for n := 14; n <= len(f); n++ {
				if n < 300 || n > len(f)-60 { // payload is between
					p.step(f[:n])
				}
			}
			for i := 12; i < min(len(f), 120); i++ {
				for _, b := range []byte{0, 1, 4, 0x45, 0x7f, 0x80, 0xff, f[i] ^ 1, f[i] + 1} {
					changed := bytes.Clone(f)
					changed[i] = b
					p.step(bytes.Clone(changed))
					if summed(changed); i < 80 {
						p.step(changed)
					}
				}
			}
		}
		p.sameState()
	}
}

// Cookies of every value, up to the width of 13 bits (TestEveryCookieValue
// runs the widest through the program alone).
func TestEveryCookie(t *testing.T) {
	for seed := uint64(40); seed < 41; seed++ {
		p := newPair(t, seed)
		widths := map[int]bool{}
		for range 200 {
			v := p.h.service()
			if v.Scheme != vip.Cheetah || v.Proto != wire.ProtoTCP || v.Layout.Bits > 13 || widths[v.Layout.Bits] {
				continue
			}
			widths[v.Layout.Bits] = true
			src := netip.AddrPortFrom(p.h.address(v.Addr.Is6(), 3), 40000)
			known := 0
			for field := range uint32(1) << v.Layout.Bits {
				r := p.step(wire.TCP{Src: src, Dst: netip.AddrPortFrom(v.Addr, max(v.Port, 1)), Flags: wire.ACK,
					Options: wire.Timestamp(1, v.Layout.WireTS(field, p.h.now))}.Frame())
				if r.Cookie == nil || r.Cookie.Field != field && r.Cookie.Field != (field-1)&(1<<v.Layout.Bits-1) {
					t.Fatalf("seed %d: field %#x decoded to %+v", seed, field, r.Cookie)
				}
				if r.Reason == bpf.Known {
					known++
				}
			}
			if known > 2*int(v.Slots)<<(v.Layout.SeatBits+v.Layout.TierBits) {
				t.Errorf("seed %d: %d of %d cookies name one of %d slots", seed, known, 1<<v.Layout.Bits, v.Slots)
			}
		}
		p.sameState()
	}
}
