package model

import (
	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/scheme/rates"
)

// rated is fl_rated: a reason to drop the packet for what its source sends, or Known.
func (t *Tables) rated(s *State, v *VIP, k *packet, nowMS uint32, opening bool) Reason {
	if k.kind != segment && k.kind != fragment || v.Rates == 0 {
		return bpf.Known
	}
	for _, limit := range []struct {
		kind   uint16
		step   uint64
		counts bool
		reason Reason
	}{
		{bpf.RatePackets, v.Steps.Packets, true, bpf.DropRateSource},
		{bpf.RateOpens, v.Steps.Opens, opening, bpf.DropRateNew},
	} {
		if v.Rates&uint8(limit.kind) == 0 || !limit.counts {
			continue
		}
		passes, lost := s.Sources.Take(t.AskKey, k.client.Addr(), &v.Steps, v.ID, limit.kind, limit.step, nowMS)
		if lost {
			s.Counters(v.ID).RateLost++
		}
		if !passes {
			s.Counters(v.ID).Rated++
			return limit.reason
		}
	}
	return bpf.Known
}

// seatRated is fl_seat_rated: the packet is over the limit of its connection.
func (t *Tables) seatRated(s *State, r *Result, k *packet, nowMS uint32) bool {
	v, seat := r.VIP, r.Cookie.Seat
	if v.Rates&bpf.RateConnection == 0 || seat == 0 {
		return false
	}
	p, epochs := k.seat(v, nowMS, k.TotalLen, false), []int{int(r.Cookie.Epoch)}
	if v.Epochs == 3 {
		epochs = append(epochs, v.OpenEpoch)
	}
	for _, e := range epochs {
		i := s.Seats.First(p.Hash[e], v.Layout.SeatBits) + seat
		if w := s.Seats.Word(i); w.Check() != uint32(p.Hash[e]>>32) || w.State() == bpf.SeatNone {
			continue
		}
		if rates.Take(&s.Seats.About[i].Due, v.Steps.Connection, nowMS) {
			return false
		}
		s.Counters(v.ID).Rated++
		return true
	}
	return false
}
