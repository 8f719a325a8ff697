package controller

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/vip"
)

var rewrite = flag.Bool("rewrite", false, "write what came out as what is expected")

// TestScripts runs testdata/*.txt: a deployment's life as text. A block is a
// command, perhaps lines of input, `----`, and what must come out. Commands:
//
//	config                the file, as input
//	first [quiet]         version 1 from the file
//	plan, apply [force]   what apply would do; do it
//	add VIP SERVER [address=A] [weight=N] [api=E] [standby], drain|undrain|remove [VIP] SERVER,
//	weight [VIP] SERVER N, rotate; each with [force]
//	live VIP SERVER EPOCH=N…   what the agent counts;  live: none
//	owns VIP SERVER B…    the buckets of which its agent says it owns connections, asked now (beamer)
//	owns VIP SERVER N     how many connections it says it owns (faild);  owns: none
//	earlier SERVER=N…     of before a migration all agents say none, but those named N
//	silent SERVER WHY          its agent does not answer; silent: none
//	stop N                the next change's series stops after N steps
//	wait DURATION         time passes
//	show                  the assignment in force
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			w := &world{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			w.forget()
			out := runScript(t, path, data, w)
			if *rewrite {
				if err := os.WriteFile(path, out, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func runScript(t *testing.T, path string, data []byte, w *world) []byte {
	var out bytes.Buffer
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 0; lines.Scan(); {
		n++
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			fmt.Fprintln(&out, line)
			continue
		}
		at, command, input := n, line, ""
		for n++; lines.Scan() && lines.Text() != "----"; n++ {
			input += lines.Text() + "\n"
		}
		want := ""
		for n++; lines.Scan() && lines.Text() != ""; n++ {
			want += lines.Text() + "\n"
		}
		got := w.do(strings.Fields(command), input)
		fmt.Fprintf(&out, "%s\n%s----\n%s\n", command, input, got)
		if got != want && !*rewrite {
			t.Errorf("%s:%d: %s\ngot:\n%swant:\n%s", path, at, command, got, want)
		}
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// world is a deployment whose daemons all have the newest version.
type world struct {
	cfg  *config.Config
	cur  *Assignment
	live LiveCounts
	now  time.Time
	stop int // steps of the next series that are handed out; 0: all
}

func (w *world) forget() {
	w.live = LiveCounts{Connections: map[LiveKey]map[uint32]uint64{}, Owned: map[LiveKey]Owned{}, Earlier: map[LiveKey]uint64{}, Silent: map[string]string{}}
}

func (w *world) do(args []string, input string) string {
	force := args[len(args)-1] == "force"
	if force {
		args = args[:len(args)-1]
	}
	command, args := args[0], args[1:]
	switch command {
	case "config":
		cfg, err := config.Parse("f", []byte("secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"+input+"controllers: [{name: c1}]\n"))
		if strings.Contains(input, "nosecret") {
			cfg, err = config.Parse("f", []byte(input))
		}
		if err != nil {
			return err.Error() + "\n"
		}
		w.cfg = cfg
		return "ok\n"
	case "first":
		a, err := First(w.cfg)
		if err != nil {
			return err.Error() + "\n"
		}
		w.cur = a
		if len(args) > 0 && args[0] == "quiet" {
			return "ok\n"
		}
		return show1(a)
	case "plan", "apply":
		steps, changes, err := Plan(w.cfg, w.cur, w.live, w.now, force)
		out := w.take(steps, changes, err, command == "plan")
		for err == nil && len(steps) > 0 && command == "apply" && w.cur == steps[len(steps)-1] {
			if steps, changes, err = Plan(w.cfg, w.cur, w.live, w.now, force); len(steps) > 0 || err != nil {
				out += "counted anew\n" + w.take(steps, changes, err, false)
			}
		}
		return out
	case "show":
		return show1(w.cur)
	case "wait":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return err.Error() + "\n"
		}
		w.now = w.now.Add(d)
		return w.now.Format(time.RFC3339) + "\n"
	case "stop":
		w.stop, _ = strconv.Atoi(args[0])
		return "ok\n"
	case "silent":
		clear(w.live.Silent)
		if args[0] != "none" {
			w.live.Silent[args[0]] = strings.Join(args[1:], " ")
		}
		return "ok\n"
	case "live":
		return w.setLive(args)
	case "earlier":
		clear(w.live.Earlier)
		for i := range w.cur.VIPs {
			v := &w.cur.VIPs[i]
			for _, s := range v.Slots {
				n := 0
				for _, a := range args {
					fmt.Sscanf(a, s.Server+"=%d", &n)
				}
				w.live.Earlier[LiveKey{v.ID, s.Server}] = uint64(n)
			}
		}
		return "ok\n"
	case "owns":
		return w.setOwned(args)
	}
	op := Op{Kind: Kind(command)}
	if op.Kind == Rotate {
		op.Key = bytes.Repeat([]byte{byte(w.cur.Version)}, 32)
	}
	var names []string
	for _, a := range args {
		key, value, isOption := strings.Cut(a, "=")
		switch {
		case a == "standby":
			op.Standby = true
		case !isOption:
			names = append(names, a)
		case key == "address":
			op.Address = netip.MustParseAddr(value)
		case key == "weight":
			op.Weight, _ = strconv.Atoi(value)
		case key == "api":
			op.API = value
		}
	}
	if op.Kind == Weight {
		op.Weight, _ = strconv.Atoi(names[len(names)-1])
		names = names[:len(names)-1]
	}
	switch len(names) {
	case 2:
		op.VIP, op.Server = names[0], names[1]
	case 1:
		op.Server = names[0]
	}
	steps, changes, err := Change(w.cur, w.live, w.now, force, op)
	return w.take(steps, changes, err, false)
}

func (w *world) setLive(args []string) string {
	if args[0] == "none" {
		clear(w.live.Connections)
		return "ok\n"
	}
	v, ok := w.cur.VIP(args[0])
	if !ok {
		return "no vip " + args[0] + "\n"
	}
	epochs := map[uint32]uint64{}
	for _, a := range args[2:] {
		var e uint32
		var n uint64
		if _, err := fmt.Sscanf(a, "%d=%d", &e, &n); err != nil {
			return err.Error() + "\n"
		}
		epochs[e] = n
	}
	w.live.Connections[LiveKey{v.ID, args[1]}] = epochs
	return "ok\n"
}

func (w *world) setOwned(args []string) string {
	if args[0] == "none" {
		clear(w.live.Owned)
		return "ok\n"
	}
	v, ok := w.cur.VIP(args[0])
	if !ok || !v.Bucketed() {
		return "no vip " + args[0] + " with buckets\n"
	}
	o := Owned{At: w.now, Generation: v.Buckets.Generation}
	if v.Scheme == vip.Beamer {
		o.Buckets = v.Buckets.Len()
		o.Bitmap = make([]byte, (o.Buckets+7)/8)
	}
	for _, a := range args[2:] {
		n, err := strconv.Atoi(a)
		switch {
		case err != nil:
			return err.Error() + "\n"
		case o.Buckets == 0:
			o.Connections = uint64(n)
		default:
			o.Connections++
			o.Bitmap[n/8] |= 1 << (n % 8)
		}
	}
	w.live.Owned[LiveKey{v.ID, args[1]}] = o
	return "ok\n"
}

// showTable is v's buckets, one letter each: who has it, and behind a slash
// who had it before, newest first.
func showTable(b *strings.Builder, v *VIP) {
	t := v.Buckets
	fmt.Fprintf(b, "  generation %d, chain_time %s, mptcp %t:", t.Generation, v.ChainTime, v.MPTCP)
	for i, s := range t.Current {
		if s == buckets.None {
			b.WriteString(" -")
			continue
		}
		fmt.Fprintf(b, " %d", s)
		for j, p := range t.Previous[i] {
			if p != buckets.None {
				fmt.Fprintf(b, "%c%d", "/,,"[j], p)
			}
		}
	}
	fmt.Fprintln(b)
}

func (w *world) take(steps []*Assignment, changes []string, err error, dry bool) string {
	if err != nil {
		return "refused: " + strings.ReplaceAll(err.Error(), "\n", "\nrefused: ") + "\n"
	}
	if len(steps) == 0 {
		return "nothing to do\n"
	}
	note := ""
	if w.stop > 0 && !dry {
		note = fmt.Sprintf("stopped after %d of %d steps\n", w.stop, len(steps))
		steps = steps[:w.stop]
		w.stop = 0
	}
	if !dry {
		w.cur = steps[len(steps)-1]
	}
	return strings.Join(changes, "\n") + "\n" + note
}

func show1(a *Assignment) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version %d, keys", a.Version)
	for _, k := range a.Keys {
		fmt.Fprintf(&b, " %d:%x", k.Epoch, k.Secret[:4])
	}
	fmt.Fprintf(&b, ", stamps %d, hash key %x\n", a.StampEpoch, a.HashKey[0]>>32)
	if len(a.Sources) > 0 {
		fmt.Fprintf(&b, "sources %v\n", a.Sources)
	}
	for _, v := range a.VIPs {
		port := config.Port(v.Port)
		fmt.Fprintf(&b, "vip %d %s %s:%s/%s %s %d bits %s %s\n", v.ID, v.Name, v.Address, port, v.Protocol, v.Scheme, v.CookieBits, v.Policy, v.Forwarding)
		clock := func(what string, at time.Time) {
			if !at.IsZero() && (v.Tracks() || v.Hash != chash.KindTableHRW || v.Chains()) {
				fmt.Fprintf(&b, " %s %s", what, at.Format(time.TimeOnly))
			}
		}
		if v.Bucketed() {
			showTable(&b, &v)
		} else if v.Tracks() || v.Hash != chash.KindTableHRW {
			fmt.Fprintf(&b, "  %s rows %d capacity %d horizon %d warm_up %s share %t", v.Hash, v.HashRows, v.Capacity, v.Horizon, v.WarmUp, v.Share)
			for _, s := range v.HorizonSteps {
				fmt.Fprintf(&b, ", below %d", s.Top)
				clock("since", s.Since)
			}
			fmt.Fprintln(&b)
		}
		if m := v.Migration; m != nil {
			fmt.Fprintf(&b, "  migrates from %s since version %d: %s\n", m.From.Scheme, m.Version, m.Stage)
		}
		for _, s := range v.Slots {
			fmt.Fprintf(&b, "  %d %s %s weight %d %s", s.Number, s.Server, s.Address, s.Weight, s.State)
			if s.State == Resting {
				fmt.Fprintf(&b, " until %s", s.RestUntil.Format(time.TimeOnly))
			}
			if s.State == Standby {
				clock("rest until", s.RestUntil)
			}
			clock("since", s.Since)
			clock("drained", s.DrainSince)
			if s.OldWeight != 0 {
				clock(fmt.Sprintf("weight %d until", s.OldWeight), s.WeightSince)
			}
			fmt.Fprintln(&b)
		}
	}
	return b.String()
}
