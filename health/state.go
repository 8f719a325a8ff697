// Package health checks servers through the forwarding that carries their
// traffic: a check connects to the VIP on one chosen server. What an answer
// means is a pure state machine (this file); when to ask is checker.go; how
// to ask is probe.go.
//
//	          rise answers in a row
//	unknown ────────────────────────▶ up
//	   │                             │ ▲
//	   │ one failure                 │ │ rise answers in a row
//	   ▼                             ▼ │
//	  down ◀──────────────────────── ──┘
//	          fall failures in a row, or its
//	          listener ended
//
// A target of which nothing was ever known starts as unknown, which counts as up:
// a daemon must not empty a pool whose servers are well. Its first failure has it down,
// since nothing speaks for it: a balancer that joins must not take longer than its peers,
// who have seen it fail, to send it nothing. One of which something was
// known when the daemon was last at work starts as that (known.go), and stays so
// until as many checks say otherwise as at any other time.
package health

// State is what is known about one target.
type State uint8

const (
	Unknown State = iota
	Up
	Down
)

// String is the word that status and metrics use.
func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Down:
		return "down"
	}
	return "unknown"
}

// Machine counts answers into a State. The zero Machine is not usable: see
// NewMachine.
type Machine struct {
	rise, fall int
	state      State
	streak     int // answers of one kind in a row; failures are negative
	remembered bool
}

// NewMachine is a machine in state Unknown. rise and fall under 1 count as 1.
func NewMachine(rise, fall int) *Machine {
	return &Machine{rise: max(rise, 1), fall: max(fall, 1)}
}

// State is the state after all answers so far.
func (m *Machine) State() State { return m.state }

// Remember makes s the state until answers say otherwise.
func (m *Machine) Remember(s State) { m.state, m.remembered = s, s != Unknown }

// Remembered says that the state is of before, and no answers have said it yet.
func (m *Machine) Remembered() bool { return m.remembered }

// SetThresholds changes rise and fall and keeps what is known.
func (m *Machine) SetThresholds(rise, fall int) { m.rise, m.fall = max(rise, 1), max(fall, 1) }

// Fall is as many failures in a row as it takes, and reports whether the state
// changed.
func (m *Machine) Fall() bool {
	before := m.state
	m.streak, m.state, m.remembered = -m.fall, Down, false
	return m.state != before
}

// Answer takes the outcome of one check and reports whether the state changed.
func (m *Machine) Answer(ok bool) bool {
	// The streak is held within its thresholds: it never overflows, and a
	// lowered threshold takes effect at the next answer.
	if ok {
		m.streak = min(max(m.streak, 0)+1, m.rise)
	} else {
		m.streak = max(min(m.streak, 0)-1, -m.fall)
	}
	before := m.state
	switch {
	case m.streak >= m.rise:
		m.state, m.remembered = Up, false
	case m.streak <= -m.fall, m.state == Unknown && !ok:
		m.state, m.remembered = Down, false
	}
	return m.state != before
}
