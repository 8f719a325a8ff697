package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/sim"
)

// patience is how long an operator waits for an answer.
const patience = 45 * time.Second

// operate makes one change after the other until ctx ends. A change that has begun is
// waited for.
func (w *world) operate(ctx context.Context, n int) {
	random := sim.Stream(w.o.Seed, fmt.Sprint("chaos/operator/", n))
	for sleep(ctx, 100*time.Millisecond+time.Duration(random.IntN(900))*time.Millisecond) == nil {
		w.change(context.WithoutCancel(ctx), w.machine(random), 0, w.verb(random)...)
	}
}

// machine is one of the deployment's.
func (w *world) machine(random *rand.Rand) string {
	all := w.lab.Daemons()
	return all[random.IntN(len(all))].Machine
}

// verb is a change. Servers 1 and 2 always work, so that clients have an answer.
func (w *world) verb(random *rand.Rand) []string {
	server := func(n int) string { return w.lab.DaemonName(fmt.Sprint("server", n)) }
	v := vips[random.IntN(len(vips))]
	switch random.IntN(9) {
	case 0, 1:
		return []string{"drain", server(3 + random.IntN(2))}
	case 2, 3:
		return []string{"undrain", server(3 + random.IntN(2))}
	case 4, 5:
		return []string{"weight", vips[0].Name, server(1 + random.IntN(4)), strconv.Itoa(1 + random.IntN(100))}
	case 6:
		if v.Standby {
			return []string{"undrain", v.Name, server(5)}
		}
		return []string{"add", v.Name, server(5)}
	case 7:
		return []string{"remove", v.Name, server(5)}
	}
	if random.IntN(3) == 0 {
		return []string{"rotate"}
	}
	return []string{"apply"}
}

// answered is what a command says of a change.
type answered struct {
	To      uint64   `json:"to"`
	Changes []string `json:"changes"`
	Diff    []string `json:"diff"` // of the desired state
	// Unanswered are daemons.
	Unanswered []struct {
		Name string `json:"name"`
	} `json:"unanswered"`
}

// told is a change with what was said.
type told struct {
	Change
	said string
}

// change has a command run on a machine, which is killed after cut, if that is not 0,
// and notes what was asked and told.
func (w *world) change(ctx context.Context, machine string, cut time.Duration, args ...string) told {
	w.mu.Lock()
	w.serial++
	c := told{Change: Change{Who: fmt.Sprint("operator", w.serial), What: strings.Join(args, " "), Outcome: Unknown}}
	w.mu.Unlock()
	limit := patience
	if cut > 0 {
		limit = cut
	}
	if err := w.lab.UserCertificate(ctx, c.Who); err != nil { // by which the store's records name it
		w.say("%v", err)
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = w.traffic.Tell(lab.LoadNotice{Begins: true}) // a load that ended is found by who waits for it
	c.Call = w.now()
	stdout, stderr, err := w.lab.Command(ctx, machine, []string{w.lab.AsUser(c.Who)}, append(args, "-f", w.lab.ConfigPath(), "-o", "json")...)
	c.Return = w.now()
	_ = w.traffic.Tell(lab.LoadNotice{Made: true})
	c.said = stderr
	switch {
	case err == nil:
		var a answered
		if err := json.Unmarshal([]byte(stdout), &a); err != nil {
			w.say("%s (%s) was acknowledged with %q: %v", c.Who, c.What, stdout, err)
			break
		}
		c.Outcome, c.To, c.Made = Done, a.To, madeBy(a.Changes)
		for _, u := range a.Unanswered {
			c.Without = append(c.Without, strings.TrimPrefix(u.Name, w.lab.Name+"-"))
		}
	case strings.Contains(stderr, "nothing was changed"):
		c.Outcome = Refused
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history.Changes = append(w.history.Changes, c.Change)
	return c
}

// madeBy are the versions of an answer's lines.
func madeBy(lines []string) map[uint64][]string {
	made := map[uint64][]string{}
	for _, line := range lines {
		rest, _ := strings.CutPrefix(line, "version ")
		number, text, _ := strings.Cut(rest, ": ")
		if v, err := strconv.ParseUint(number, 10, 64); err == nil {
			made[v] = append(made[v], text)
		}
	}
	return made
}

// look looks at the history, again and again.
func (w *world) look(ctx context.Context, n int) {
	random := sim.Stream(w.o.Seed, fmt.Sprint("chaos/look/", n))
	for sleep(ctx, time.Second+time.Duration(random.IntN(1000))*time.Millisecond) == nil {
		_, _ = w.lookFrom(context.WithoutCancel(ctx), w.machine(random)) // where no majority answers there is nothing to see
	}
}

// lookFrom looks once.
func (w *world) lookFrom(ctx context.Context, machine string) ([]Entry, error) {
	l := Look{Call: w.now()}
	entries, err := w.entries(ctx, machine)
	if err != nil {
		return nil, err
	}
	l.Return, l.Entries = w.now(), entries
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history.Looks = append(w.history.Looks, l)
	return entries, nil
}

// entries are the store's versions, as a machine sees them.
func (w *world) entries(ctx context.Context, machine string) (entries []Entry, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stdout, stderr, err := w.lab.Command(ctx, machine, nil, "history", "-f", w.lab.ConfigPath(), "--last", "1000", "-o", "json")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), &entries); err != nil {
		return nil, fmt.Errorf("the history is %q: %w", stdout, err)
	}
	for i, e := range entries {
		if e.Version != uint64(i)+1 { // the lab is new, and no run makes a thousand
			w.say("the history has version %d in place %d", e.Version, i+1)
			return nil, fmt.Errorf("version %d in place %d", e.Version, i+1)
		}
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("the history is empty")
	}
	return entries, nil
}

// watch looks what a daemon goes by.
func (w *world) watch(ctx context.Context, machine string) {
	for sleep(ctx, 500*time.Millisecond) == nil {
		_, _ = w.sight(ctx, machine) // it is down, or parted from nobody who looks
	}
}

// undone says why what is wanted is not one thing to all controllers, and what they go by.
func (w *world) undone(ctx context.Context) string {
	wanted := ""
	for _, p := range w.lab.ControllerProcesses() {
		text, stderr, err := w.lab.Command(ctx, p.Machine, nil, "get", "config", "-f", w.lab.ConfigPath())
		switch {
		case err != nil:
			return p.Machine + ": " + stderr
		case wanted != "" && text != wanted:
			return fmt.Sprintf("%s has another desired state than the others: %q, and %q", p.Machine, text, wanted)
		}
		wanted = text
	}
	file := filepath.Join(w.lab.Dir(), "desired.yaml")
	if err := os.WriteFile(file, []byte("secret: "+w.lab.Secret()+"\n"+wanted), 0o600); err != nil { // which a store gives nobody
		return err.Error()
	}
	stdout, stderr, err := w.lab.Command(ctx, "server1", nil, "plan", "-f", file, "-o", "json")
	if err != nil {
		return "plan: " + stderr
	}
	var a answered
	if err := json.Unmarshal([]byte(stdout), &a); err != nil {
		return err.Error()
	}
	if len(a.Changes)+len(a.Diff) > 0 {
		return fmt.Sprintf("the desired state is not what is gone by: %q, %q", a.Changes, a.Diff)
	}
	return ""
}
