// Package upgrade is the scenario `lab run rolling-upgrade`: a deployment under traffic runs
// one build of the program, and then, process by process, another. Where the first one
// is of before there was a store, controllers come first, and what daemons had on disk
// becomes the store's; else controllers, balancers and agents change their program one at
// a time, with changes made between.
//
//	lb1 (ctl1)   server1 (ctl2)   lb2 (ctl3)   server2   server3   server4
package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/experiment"
	"github.com/fairlead/fairlead/lab/netspace"
)

// Options of a run; zero fields are the defaults.
type Options struct {
	Name string // of the lab; default upgrade and this process's number
	Seed uint64 // of the connections
	// From is the program that everything runs at first; empty: a copy of Program.
	From string
	// Program is what everything runs at the end.
	Program string
	Keep    bool // leave the lab of a failed run
	// Watch, if not nil, is told what happens.
	Watch func(text string)
}

// Result is a run. Its JSON form is stable.
type Result struct {
	experiment.Head
	// From and To are the programs' versions; Migrated: the first knew no store.
	From     string `json:"from"`
	To       string `json:"to"`
	Migrated bool   `json:"migrated"`
	Steps    []Step `json:"steps"`
	// Versions are the store's at the end, the oldest first.
	Versions    []Version            `json:"versions"`
	Connections map[string]lab.Tally `json:"connections"`
	Failures    []lab.Failure        `json:"failures,omitempty"`
}

// Step is a process that was started again, or a change.
type Step struct {
	Text string `json:"text"`
	// Seconds it took, to being ready or to the last daemon.
	Seconds float64 `json:"seconds"`
}

// Version is what `fairlead history` has of one.
type Version struct {
	Version uint64   `json:"version"`
	Who     string   `json:"who"`
	Changes []string `json:"changes"`
	Digest  string   `json:"digest"`
}

// patience is how long anything may take.
const patience = 60 * time.Second

var vips = []lab.VIP{
	{Name: "web", Address: netip.MustParseAddr("10.77.7.1"), Port: 80, Protocol: "tcp", Scheme: "cheetah", Policy: "wrr", Health: "http"},
	{Name: "jet", Address: netip.MustParseAddr("10.77.7.2"), Port: 80, Protocol: "tcp", Scheme: "jet", Policy: "hash", Health: "http"},
}

// upgrade is a running one.
type upgrade struct {
	o       *Options
	lab     *lab.Lab
	traffic *lab.Traffic
	result  *Result
	drained bool // server4
}

// Run carries the scenario out.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	if o.Name == "" {
		o.Name = fmt.Sprint("upgrade", os.Getpid())
	}
	if o.Watch == nil {
		o.Watch = func(string) {}
	}
	if o.From == "" {
		folder, err := os.MkdirTemp("", "fairlead-before-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(folder)
		o.From = filepath.Join(folder, "fairlead")
		if err := copyFile(o.From, o.Program); err != nil {
			return nil, err
		}
	}
	u := &upgrade{o: &o, result: &Result{Head: experiment.Begin("rolling-upgrade", o.Seed), Steps: []Step{}}}
	r := u.result
	if r.From, err = versionOf(ctx, o.From); err != nil {
		return nil, err
	}
	if r.To, err = versionOf(ctx, o.Program); err != nil {
		return nil, err
	}
	if r.Migrated, err = knowsNoStore(ctx, o.From); err != nil {
		return nil, err
	}
	u.lab, err = lab.Up(ctx, lab.Options{Name: o.Name, Servers: 4, LBs: 2, VIPs: vips, Exposed: true, Controllers: 3,
		Before: r.Migrated, From: o.From, Program: o.Program}, !o.Keep)
	if err != nil {
		return nil, err
	}
	err = u.play(ctx)
	if !o.Keep || err == nil && len(r.Verdict) == 0 {
		err = errors.Join(err, lab.Down(o.Name))
	}
	if err != nil {
		return nil, err
	}
	r.End()
	return r, nil
}

func versionOf(ctx context.Context, program string) (string, error) {
	out, err := exec.CommandContext(ctx, program, "version", "-o", "json").Output()
	var v struct{ Version string }
	if err == nil {
		err = json.Unmarshal(out, &v)
	}
	if err != nil {
		return "", fmt.Errorf("--from %s: it does not say its version: %w", program, err)
	}
	return v.Version, nil
}

// knowsNoStore: the program has no such command.
func knowsNoStore(ctx context.Context, program string) (bool, error) {
	out, err := exec.CommandContext(ctx, program, "controller", "--help").Output()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		return false, fmt.Errorf("--from %s: %w", program, err)
	}
	return err != nil || !strings.Contains(string(out), "fairlead controller"), nil
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// planned is how long it takes, about; longer, and only short connections come.
const planned = 40 * time.Second

func (u *upgrade) play(ctx context.Context) (err error) {
	s := int(planned.Seconds())
	if u.traffic, err = u.lab.StartTraffic(ctx, lab.LoadPlan{Seed: u.o.Seed, Seconds: float64(s), Short: 8 * s, Stream: s, Upload: s / 2, Idle: s,
		Hold: true, Beyond: 600, Device: lab.Uplink}); err != nil {
		return err
	}
	defer u.traffic.Stop()
	steps := u.renewal
	if u.result.Migrated {
		steps = u.migration
	}
	if err := steps(ctx); err != nil {
		return err
	}
	if err := u.traffic.Tell(lab.LoadNotice{Over: true}); err != nil {
		return err
	}
	last, err := u.traffic.Wait()
	if err != nil {
		return err
	}
	return u.judge(ctx, last)
}

// migration brings what daemons have on disk into a store that was not there.
func (u *upgrade) migration(ctx context.Context) error {
	for range 2 {
		if err := u.change(ctx); err != nil {
			return err
		}
	}
	before, err := u.lab.StatusOf(ctx, "lb1")
	if err != nil {
		return err
	}
	if err := u.step(ctx, "controllers are written into the file, and started", func(ctx context.Context) error {
		return u.lab.AddControllers(ctx)
	}); err != nil {
		return err
	}
	for _, p := range u.lab.Daemons() {
		if err := u.renew(ctx, p); err != nil {
			return err
		}
	}
	if err := u.step(ctx, "fairlead apply: what the daemons have is the store's", func(ctx context.Context) error {
		return u.command(ctx, "lb1", "apply")
	}); err != nil {
		return err
	}
	versions, err := u.versions(ctx)
	if err != nil {
		return err
	}
	if versions[0].Version != before.AssignmentVersion || !strings.Contains(strings.Join(versions[0].Changes, " "), "taken over") {
		u.say("the store begins with version %d (%s), and daemons went by %d", versions[0].Version, strings.Join(versions[0].Changes, "; "), before.AssignmentVersion)
	}
	for range 2 {
		if err := u.change(ctx); err != nil {
			return err
		}
	}
	return nil
}

// renewal has controllers, balancers and agents change their programs, and a change made
// after each.
func (u *upgrade) renewal(ctx context.Context) error {
	if err := u.change(ctx); err != nil {
		return err
	}
	for _, p := range append(u.lab.ControllerProcesses(), u.lab.Daemons()...) {
		if err := u.renew(ctx, p); err != nil {
			return err
		}
		if err := u.change(ctx); err != nil {
			return err
		}
	}
	return nil
}

// renew stops a process and starts the other program in its place.
func (u *upgrade) renew(ctx context.Context, p lab.Process) error {
	return u.step(ctx, p.Name+" runs the new program", func(ctx context.Context) error {
		if u.lab.Runs(p) {
			if err := u.lab.Signal(p, syscall.SIGTERM); err != nil {
				return err
			}
		}
		if !netspace.WaitFor(patience, func() bool { return !u.lab.Runs(p) || ctx.Err() != nil }) {
			return fmt.Errorf("%s does not end", p.Name)
		}
		u.lab.Renew(p)
		if err := u.lab.Start(p); err != nil {
			return err
		}
		if p.Name != p.Machine { // a controller: the change that follows waits for it
			return nil
		}
		return u.lab.Await(ctx, p)
	})
}

// change drains a server, or takes that back, in all VIPs.
func (u *upgrade) change(ctx context.Context) error {
	verb := "drain"
	if u.drained {
		verb = "undrain"
	}
	u.drained = !u.drained
	if err := u.traffic.Tell(lab.LoadNotice{Begins: true}); err != nil {
		return err
	}
	err := u.step(ctx, verb+" server4", func(ctx context.Context) error { return u.command(ctx, "lb1", verb, u.lab.DaemonName("server4")) })
	return errors.Join(err, u.traffic.Tell(lab.LoadNotice{Made: true}))
}

// command runs one until it is acknowledged: while controllers start there may be no
// leader for a moment, or nobody who answers, and then nothing was changed.
func (u *upgrade) command(ctx context.Context, machine string, args ...string) error {
	var said string
	var err error
	done := netspace.WaitFor(patience, func() bool {
		_, said, err = u.lab.Command(ctx, machine, nil, append(args, "-f", u.lab.ConfigPath())...)
		unbegun := strings.Contains(said, "nothing was changed") || strings.Contains(said, "no controller answers")
		return err == nil || !unbegun || ctx.Err() != nil
	})
	if err != nil || !done {
		return fmt.Errorf("fairlead %s: %w: %s", strings.Join(args, " "), err, said)
	}
	return nil
}

func (u *upgrade) step(ctx context.Context, text string, do func(context.Context) error) error {
	began := time.Now()
	if err := do(ctx); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	u.result.Steps = append(u.result.Steps, Step{text, time.Since(began).Seconds()})
	u.o.Watch(fmt.Sprintf("%s: %.1f s", text, time.Since(began).Seconds()))
	return ctx.Err()
}

func (u *upgrade) versions(ctx context.Context) (versions []Version, err error) {
	stdout, stderr, err := u.lab.Command(ctx, "lb1", nil, "history", "-f", u.lab.ConfigPath(), "--last", "1000", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(stdout), &versions)
	}
	if err == nil && len(versions) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("the store's history: %w: %s", err, stderr)
	}
	return versions, nil
}

func (u *upgrade) say(format string, args ...any) {
	u.result.Verdict = append(u.result.Verdict, fmt.Sprintf(format, args...))
}

// judge says what is not as it must be.
func (u *upgrade) judge(ctx context.Context, last lab.LoadReport) (err error) {
	r := u.result
	r.Connections, r.Failures = last.Tallies, last.Failures[:min(len(last.Failures), 20)]
	for _, v := range vips {
		switch t := last.Tallies[v.Name]; {
		case t.Broken > 0:
			u.say("%s: %d connections broken, must be 0", v.Name, t.Broken)
		case t.Resets > 0:
			u.say("%s: %d RSTs came to clients, must be 0", v.Name, t.Resets)
		case t.Survived == 0:
			u.say("%s: no connection lived through a change, so the run proves nothing", v.Name)
		}
	}
	if r.Versions, err = u.versions(ctx); err != nil {
		return err
	}
	newest := r.Versions[len(r.Versions)-1]
	for _, p := range append(u.lab.Daemons(), u.lab.ControllerProcesses()...) {
		if is, err := u.lab.Running(p); err != nil || is != u.o.Program {
			u.say("%s runs %s, not %s: %v", p.Name, is, u.o.Program, err)
		}
	}
	for _, p := range u.lab.Daemons() {
		s, err := u.lab.StatusOf(ctx, p.Machine)
		if err != nil {
			return err
		}
		if s.AssignmentVersion != newest.Version || fmt.Sprintf("%x", s.AssignmentDigest) != newest.Digest || s.Version != r.To {
			u.say("%s (%s) goes by version %d, and the store has %d, or another one of that number", p.Name, s.Version, s.AssignmentVersion, newest.Version)
		}
	}
	return nil
}

// Print writes the result for people.
func (r *Result) Print(w io.Writer) error {
	kind := ""
	if r.Migrated {
		kind = ", which knew no store"
	}
	fmt.Fprintf(w, "seed %d, kernel %s, %.0f s; from %s%s to %s\n\n", r.Seed, r.Kernel, r.Seconds, r.From, kind, r.To)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STEP\tSECONDS")
	for _, s := range r.Steps {
		fmt.Fprintf(t, "%s\t%.1f\n", s.Text, s.Seconds)
	}
	fmt.Fprintln(t, "\nVIP\tCONNECTIONS\tCOMPLETED\tLIVED THROUGH A CHANGE\tBROKEN\tRSTS")
	for _, v := range vips {
		c := r.Connections[v.Name]
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\n", v.Name, c.Started, c.Completed, c.Survived, c.Broken, c.Resets)
	}
	return t.Flush()
}
