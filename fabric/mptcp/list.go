package mptcp

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/fabric/paths"
)

// Listed is a connection as people see it.
type Listed struct {
	Token    uint32          `json:"token"`
	From     string          `json:"from"` // this host, as the fabric calls it; empty: not in it
	To       string          `json:"to"`
	Client   bool            `json:"client"` // this side opened it
	Subflows []ListedSubflow `json:"subflows"`
}

// ListedSubflow is one of its subflows.
type ListedSubflow struct {
	Local  string `json:"local"`
	Remote string `json:"remote"`
	State  string `json:"state"`
	// Path are the names of the nodes that its packets pass, Links those of
	// the links; empty: not known.
	Path  []string `json:"path"`
	Links []string `json:"links"`
	// RTT in microseconds, Rate in bit/s as lately delivered, Acked in bytes.
	RTT   uint32 `json:"rtt_us"`
	Rate  uint64 `json:"rate_bits"`
	Acked uint64 `json:"acked_bytes"`
}

// List is what there is in the calling thread's network namespace, with the
// paths that the fabric gives packets from here.
func List(net *paths.Net) ([]Listed, error) {
	d, err := openDiag()
	if err != nil {
		return nil, err
	}
	defer d.close()
	all, err := d.subflows()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Subflow) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), int(a.LocalID)-int(b.LocalID), int(a.Local.Port())-int(b.Local.Port()))
	})
	list := []Listed{}
	for i := range all {
		s := &all[i]
		if len(list) == 0 || list[len(list)-1].Token != s.Token {
			list = append(list, Listed{Token: s.Token, From: name(net, s.Local.Addr().String()), To: name(net, s.Remote.Addr().String()), Client: s.Client})
		}
		c := &list[len(list)-1]
		c.Subflows = append(c.Subflows, s.listed(net))
	}
	return list, nil
}

func name(net *paths.Net, address string) string {
	p, err := net.Place(address)
	if err != nil {
		return ""
	}
	return net.Fabric().Nodes[p.Node].Name
}

func (s *Subflow) listed(net *paths.Net) ListedSubflow {
	l := ListedSubflow{Local: s.Local.String(), Remote: s.Remote.String(), State: s.state(), Path: []string{}, Links: []string{},
		RTT: s.Info.RTT, Rate: s.Info.Rate * 8, Acked: s.Info.Acked}
	p, _, known, err := net.Of(s.flow(), 0)
	if err != nil || !known {
		return l
	}
	f := net.Fabric()
	for i, h := range p.Hops {
		if i == 0 {
			l.Path = append(l.Path, f.Nodes[f.Links[h.Link].Ends[h.From].Node].Name)
		}
		l.Path = append(l.Path, f.Nodes[f.Links[h.Link].Ends[1-h.From].Node].Name)
		l.Links = append(l.Links, net.LinkName(h.Link))
	}
	return l
}

// state is the subflow's in a word.
func (s *Subflow) state() string {
	switch {
	case s.fails():
		return "failing"
	case s.connecting():
		return "opening"
	case s.ends():
		return "closing"
	case !s.Established:
		return "joining"
	}
	return "open"
}
