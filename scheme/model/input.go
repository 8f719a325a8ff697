package model

import "github.com/fairlead/fairlead/wire"

// Input is a way by which the kernel takes frames (fl_input): to a MAC address
// in a VLAN (0: untagged) of the interface that they come by.
type Input struct {
	Ifindex uint32
	VLAN    uint16
	MAC     wire.MAC
}

// mine: the frame is for this machine (fl_mine).
func (t *Tables) mine(p *wire.Parsed) bool {
	return t.Inputs == nil || t.Inputs[Input{t.Ingress, p.VLAN & 0xfff, wire.MAC(p.Frame)}]
}
