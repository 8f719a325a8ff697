package tables

import (
	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/scheme/rates"
	"github.com/fairlead/fairlead/vip"
)

// limit gives a VIP's entry its limits of rates.
func (p *Plan) limit(e *bpf.VIP, r *vip.Rates) {
	if r == nil {
		return
	}
	var steps bpf.Rates
	if c := r.Connection; c != nil {
		e.Rates |= bpf.RateConnection
		steps.Connection = rates.Step(c.Packets)
	}
	if s := r.Source; s != nil {
		steps.Packets, steps.Opens = rates.Step(s.Packets), rates.Step(s.Connections)
		steps.Mask4, steps.Mask6 = rates.Masks(s.PrefixV4, s.PrefixV6)
		if s.Packets > 0 {
			e.Rates |= bpf.RatePackets
		}
		if s.Connections > 0 {
			e.Rates |= bpf.RateOpens
		}
	}
	if p.Rates == nil {
		p.Rates = map[uint32]bpf.Rates{}
	}
	p.Rates[e.Id] = steps
}
