package bench

import "slices"

// fig5Paper is Cheetah's figure 5: cycles a packet, by new requests a second, from the
// authors' data.
var fig5Paper = map[string]map[int]float64{
	"hash-rss":         {5_000: 92, 40_000: 83, 160_000: 77, 640_000: 56},
	"cheetah":          {5_000: 85, 40_000: 81, 160_000: 77, 640_000: 62},
	"hash-crc":         {5_000: 121, 40_000: 107, 160_000: 104, 640_000: 76},
	"cheetah-stateful": {5_000: 202, 40_000: 127, 160_000: 136, 640_000: 123},
	"beamer":           {5_000: 214, 40_000: 194, 160_000: 185, 640_000: 156},
	"cuckoo":           {5_000: 448, 40_000: 407, 160_000: 385, 640_000: 307},
}

// Fig5Compare is two ways of the paper's at a rate, the one that is cheaper there first.
type Fig5Compare struct {
	Rate    int     `json:"new_a_second"`
	Cheaper string  `json:"cheaper"`
	Dearer  string  `json:"dearer"`
	Paper   float64 `json:"paper_ratio"` // how many times as much the dearer one is there
	Here    float64 `json:"ratio"`       // and here
	// Holds: "holds", "differs", or "close": within a twentieth here.
	Holds  string `json:"holds"`
	Reason string `json:"reason,omitempty"` // why it differs, where that was found out
}

// fig5Same: what the paper's figure has less than that apart it calls the same
// ("almost the same number of CPU cycles" is said of 62 and 56).
const fig5Same = 1.12

// fig5Close: what is less apart here is not judged.
const fig5Close = 1.05

// compare holds the points against the paper's orders.
func compare(points []Fig5Point) (all []Fig5Compare) {
	for _, cheap := range points {
		for _, dear := range points {
			if cheap.Rate != dear.Rate || cheap.Paper == 0 || dear.Paper < cheap.Paper*fig5Same || cheap.NS <= 0 {
				continue
			}
			c := Fig5Compare{Rate: cheap.Rate, Cheaper: cheap.Name, Dearer: dear.Name,
				Paper: dear.Paper / cheap.Paper, Here: dear.NS / cheap.NS, Holds: "close"}
			switch {
			case c.Here >= fig5Close:
				c.Holds = "holds"
			case c.Here <= 1/fig5Close:
				c.Holds, c.Reason = "differs", fig5Reasons[[2]string{c.Cheaper, c.Dearer}]
			}
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b Fig5Compare) int { return a.Rate - b.Rate })
	return all
}

// fig5Reasons say why an order differs, by the way that is cheaper in the paper and
// the one that is dearer; docs/bench.md says how that was found out.
var fig5Reasons = map[[2]string]string{
	{"hash-rss", "beamer"}: fig5Floor,
	{"hash-crc", "beamer"}: fig5Floor,
	{"cheetah", "beamer"}: "here every way encapsulates, and beamer's buckets that have not moved take nothing along; " +
		"beamer-moved, which takes along the server before as the paper's does, is dearer than cheetah",
	{"cheetah-stateful", "beamer"}: "beamer keeps nothing; a seat costs 4 ns in the cache and, with a million open, 80 of waiting for memory; " +
		"8 more are the cookie's width and the SYN, not taken apart",
}

const fig5Floor = "the floor, on which the hash ways stand, looks its VIP up in a BPF hash map, which the balancer's beamer " +
	"does not and which costs 27 ns; without it the order holds"
