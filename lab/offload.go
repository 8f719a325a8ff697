package lab

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/fairlead/fairlead/vip"
)

// OffloadScale is scenario offload as it is judged.
var OffloadScale = Scale{Connections: 500, Slot: 3 * time.Second}

// Handshakes is what the agents of servers that live count of a VIP.
type Handshakes struct {
	VIP string `json:"vip"`
	// Answered are SYNs that agents' programs answered, the flood's as well, Opened the
	// handshakes that clients ended, Stack the SYNs left to the stack.
	Answered uint64 `json:"answered"`
	Opened   uint64 `json:"opened"`
	Stack    uint64 `json:"stack"`
	// Segments came in for the VIP, of which Changed had their timestamp put back.
	Segments uint64 `json:"segments"`
	Changed  uint64 `json:"changed"`
}

// offloadParts are one lab, in which each run is there twice: with its handshakes
// offloaded, and as it is else, beside it.
func (o RunOptions) offloadParts() []part {
	var runs []RunTally
	for _, r := range o.runs() {
		offloaded := r
		offloaded.Handshake = vip.HandshakeOffload
		runs = append(runs, offloaded, r)
	}
	return []part{{runs: runs}}
}

// offload is churn under a flood of the offloaded VIPs.
func (r *runner) offload(ctx context.Context) error {
	c := r.churn()
	steps, err := c.choose(r.o.Scale.Steps)
	if err == nil && r.o.Scale.Steps == nil {
		steps, err = c.arrange(steps)
	}
	if err != nil {
		return err
	}
	f, err := r.startFlood(ctx, r.length(max(len(steps), 5))+time.Duration(len(steps))*stepWait)
	if err != nil {
		return err
	}
	defer f.stop()
	l, err := r.lab.startLoad(ctx, r.plan(r.length(max(len(steps), 5))))
	if err != nil {
		return err
	}
	r.load = loads{l}
	c.load = r.load
	if err := r.steps(ctx, steps, time.Now().Add(lead)); err != nil {
		return err
	}
	report, err := f.end()
	if err != nil {
		return err
	}
	r.result.Floods = append(r.result.Floods, report)
	if r.result.Handshakes, err = r.lab.handshakes(ctx); err != nil {
		return err
	}
	r.result.Reasons = r.lab.agentReasons(ctx) // for the judge
	return r.end(ctx)
}

// handshakes asks the agents that live.
func (l *Lab) handshakes(ctx context.Context) ([]Handshakes, error) {
	all := make([]Handshakes, len(l.VIPs))
	for _, s := range l.servers() {
		if l.pid(s, s) == 0 {
			continue
		}
		status, err := l.daemonStatus(ctx, s)
		if err != nil {
			continue // stopped on purpose
		}
		for i, v := range l.VIPs {
			all[i].VIP = v.Name
			for _, is := range status.Vips {
				if n := is.Counters; is.Name == v.Name {
					all[i].Answered += n.HandshakesAnswered
					all[i].Opened += n.HandshakesOpened
					all[i].Stack += n.HandshakesStack
					all[i].Segments += n.Packets
					all[i].Changed += n.Restored
				}
			}
		}
	}
	return all, nil
}

// judgeOffload: agents answered, and changed nothing afterwards; of the others' VIPs
// segments were changed. What the flood made up looks like a cookie by chance, one in
// thousands: it has no socket and no right MAC, and is left to the stack as the end of
// one of its own SYN cookies.
func (r *runner) judgeOffload(say func(string, ...any)) {
	of, forged := map[string]Handshakes{}, r.result.Reasons["handshake_bad_mac"]
	for _, h := range r.result.Handshakes {
		of[h.VIP] = h
	}
	for _, run := range r.result.Runs {
		h := of[run.Name()]
		offloads := run.Handshake == vip.HandshakeOffload
		if offloads {
			n := min(forged, h.Changed)
			h.Changed, forged = h.Changed-n, forged-n
		}
		switch {
		case offloads && h.Opened == 0:
			say("%s: no handshake was offloaded", run.Name())
		case offloads && h.Changed > 0 && h.Stack == 0:
			say("%s: %d of %d segments were changed, must be 0 but for the flood's", run.Name(), h.Changed, h.Segments)
		case offloads && h.Changed > h.Segments/1000:
			say("%s: %d of %d segments were changed, and %d SYNs left to the stack", run.Name(), h.Changed, h.Segments, h.Stack)
		case !offloads && h.Changed == 0:
			say("%s: no segment was changed, so the run proves nothing about the others", run.Name())
		}
	}
}

func (r *Result) printHandshakes(w io.Writer) error {
	if len(r.Handshakes) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nVIP\tSYNS ANSWERED\tOPENED\tLEFT TO THE STACK\tSEGMENTS IN\tCHANGED")
	for _, h := range r.Handshakes {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\n", h.VIP, h.Answered, h.Opened, h.Stack, h.Segments, h.Changed)
	}
	return t.Flush()
}
