package config

import "fmt"

// Limits sizes the maps; they are fixed while the program is loaded. Load
// fills in the defaults and holds them against the bounds below.
type Limits struct {
	ServerLines  int `yaml:"server_lines"`  // slots of all VIPs
	TableEntries int `yaml:"table_entries"` // policies' and hash tables' entries, half of them idle
	Flows        int `yaml:"flows"`         // fallback's flow table
	Seats        int `yaml:"seats"`         // connections of scheme cheetah-stateful
	RateSources  int `yaml:"rate_sources"`  // buckets of sources whose rates are limited
	AskRate      int `yaml:"ask_rate"`      // packets a second that all servers are asked about; 0: none
}

// limit is one field of Limits: its key in the file, its default, its bounds.
type limit struct {
	value            *int
	key              string
	usual, low, high int
}

func (l *Limits) all() []limit {
	return []limit{
		// The mark of a health check can name 2^20 lines. 2^28 entries are 2 GiB,
		// twice what 1,000 VIPs of 65,536 rows take.
		{&l.ServerLines, "server_lines", 16384, 64, 1 << 18},
		{&l.TableEntries, "table_entries", 2097152, 1 << 10, 1 << 28},
		{&l.Flows, "flows", 262144, 1 << 8, 1 << 26},
		{&l.Seats, "seats", 262144, 1 << 10, 1 << 25},
		{&l.RateSources, "rate_sources", 65536, 1 << 8, 1 << 24},
		{&l.AskRate, "ask_rate", 100, 0, 1 << 20},
	}
}

// MostLimits are the highest.
func MostLimits() (l Limits) {
	for _, f := range l.all() {
		*f.value = f.high
	}
	return l
}

// DefaultLimits are those of a file that says nothing of limits.
func DefaultLimits() (l Limits) {
	for _, f := range l.all() {
		*f.value = f.usual
	}
	return l
}

// problem is what is wrong with a limit, and the remedy; "" if nothing is.
func (l limit) problem() (what, remedy string) {
	if *l.value >= l.low && *l.value <= l.high {
		return "", ""
	}
	return "out of range", fmt.Sprintf("write %d to %d", l.low, l.high)
}

// Validate is for limits that do not come from Load.
func (l Limits) Validate() error {
	for _, f := range l.all() {
		if what, remedy := f.problem(); what != "" {
			return fmt.Errorf("limits.%s %d: %s; %s", f.key, *f.value, what, remedy)
		}
	}
	return nil
}
