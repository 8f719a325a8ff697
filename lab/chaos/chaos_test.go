package chaos

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/soak"
)

// A dozen faults, of every kind, as `lab run chaos` has them but shorter, judged as it is; a
// soak has more, as long as there.
func TestChaos(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test builds network namespaces: run it as root")
	}
	o := Options{Seed: 142, Faults: 12, Longest: 1200 * time.Millisecond, Program: built.Fairlead(t), Watch: func(text string) { t.Log(text) }}
	if soak.On() {
		o.Seed, o.Faults, o.Longest = soak.Seed(t), 100, 0
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Verdict) > 0 {
		t.Error(strings.Join(r.Verdict, "\n"))
	}
	t.Logf("well again after %.1f s at most, at the end after %.1f s; changes %v", r.Healed, r.Recovered, r.Changes)
	if kinds := len(r.ByKind); kinds != 10 && !soak.On() {
		t.Errorf("%d kinds of faults: draw with another seed", kinds)
	}
	if len(r.Faults) != o.Faults || r.Versions < 2 || r.Looks == 0 || r.Sights == 0 {
		t.Errorf("%d faults, %d versions, %d looks, %d sights", len(r.Faults), r.Versions, r.Looks, r.Sights)
	}
}

// The same seed draws the same faults.
func TestDraw(t *testing.T) {
	draw := func(seed uint64) (text string) {
		o := Options{Name: "chaos", Seed: seed, Longest: time.Second}
		for _, round := range newWorld(&o, &lab.Lab{Options: o.options()}).draw(200) {
			for _, f := range round {
				text += f.text + f.delay.String() + f.length.String() + "\n"
			}
		}
		return text
	}
	one := draw(1)
	if one != draw(1) || one == draw(2) {
		t.Error("faults do not go by the seed")
	}
	for _, kind := range []string{"is killed", "stands still", "disk is full", "is changed while", "is cut while", "that leads", "command is killed", "wall clock is stepped by", "parted from", "the service of", "loses its power"} {
		if !strings.Contains(one, kind) {
			t.Errorf("of 200 faults none %s", kind)
		}
	}
}

// One server dies at a time, and for no longer than who connects waits.
func TestDeaths(t *testing.T) {
	o := Options{Name: "chaos", Seed: 1, Longest: 4 * time.Second}
	for _, round := range newWorld(&o, &lab.Lab{Options: o.options()}).draw(1000) {
		deaths, longest := 0, time.Duration(0)
		for _, f := range round {
			longest = max(longest, f.delay+f.length)
			if f.dies {
				deaths++
			}
		}
		if deaths > 1 || deaths == 1 && longest > 10*time.Second {
			t.Errorf("%d servers die together, and the longest fault lasts %v", deaths, longest)
		}
	}
}

// Connections that end are judged: with a server that died they may.
func TestJudge(t *testing.T) {
	well := func() lab.LoadReport {
		r := lab.LoadReport{Tallies: map[string]lab.Tally{}}
		for _, v := range vips {
			r.Tallies[v.Name] = lab.Tally{Started: 100, Completed: 95, LostWithServer: 5, Survived: 10}
		}
		return r
	}
	for want, spoil := range map[string]func(*lab.Tally, *lab.LoadReport){
		"":                               func(*lab.Tally, *lab.LoadReport) {},
		"web: 1 connections broken":      func(t *lab.Tally, _ *lab.LoadReport) { t.Completed, t.Broken = 94, 1 },
		"web: 1 RSTs came to clients":    func(t *lab.Tally, _ *lab.LoadReport) { t.Resets = 1 },
		"web: 100 connections, but 99":   func(t *lab.Tally, _ *lab.LoadReport) { t.Completed = 94 },
		"too few to prove anything":      func(t *lab.Tally, _ *lab.LoadReport) { t.Survived = 1 },
		"2 RSTs at the client were seen": func(_ *lab.Tally, r *lab.LoadReport) { r.MissedResets = 2 },
		"servers died, and no connection": func(_ *lab.Tally, r *lab.LoadReport) {
			r.Tallies["jet"] = lab.Tally{Started: 100, Completed: 100, Survived: 10}
		},
	} {
		o := Options{Name: "chaos"}
		w := newWorld(&o, &lab.Lab{Options: o.options()})
		w.history.First = []Entry{{Version: 1, Who: "operator@lb1"}}
		w.history.Changes = []Change{{Who: "operator1", Outcome: Done, To: 1}}
		last, r := well(), Result{ByKind: map[string]int{"power": deathsToProve}}
		web := last.Tallies["web"]
		spoil(&web, &last)
		last.Tallies["web"] = web
		w.judge(last, &r)
		if got := strings.Join(r.Verdict, "\n"); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("the verdict is %q, want %q", got, want)
		}
	}
}

// A process that ends is judged: it may for a fault of its own, until all is well again,
// and a controller whose disk failed later, too, if its store does not go on.
func TestEnded(t *testing.T) {
	o := Options{Name: "chaos"}
	w := newWorld(&o, &lab.Lab{Options: o.options()})
	d, k := w.lab.Daemons()[0], w.lab.ControllerProcesses()[0]
	ends := func(p lab.Process, said string, want bool, when string) {
		t.Helper()
		before := len(w.wrong)
		w.ended(p, p.Name+" "+when, said)
		if may := len(w.wrong) == before; may != want {
			t.Errorf("%s may end %s: %t", p.Name, when, may)
		}
	}
	ends(d, "", false, "at first")
	w.touch(d, shaken)
	ends(d, "", true, "while a fault touches it")
	ends(k, etcdPanics, false, "while one touches another")
	w.calm()
	ends(d, "", false, "afterwards")
	w.touch(d, damaged)
	w.touch(k, damaged)
	w.touch(k, shaken)
	ends(d, "", true, "with a damaged disk")
	ends(k, "", true, "with a damaged disk")
	w.calm()
	ends(d, "", false, "after a damaged disk")
	ends(k, etcdPanics, true, "after a damaged disk, by its etcd")
	ends(k, `fairlead: start the store: store member "ctl1" in /state/etcd: the store's folder is damaged`, true, "after a damaged disk, as its store is damaged")
	ends(k, wePanic, false, "after a damaged disk, by a panic of ours")
	ends(k, "fairlead: open the audit log: permission denied", false, "after a damaged disk, by an error of ours")
	ends(k, "", false, "after a damaged disk, without a word")
	w.touch(k, shaken)
	ends(k, "", true, "when it is touched again")
}

const (
	etcdPanics = "panic: failed to commit tx\n\ngoroutine 135 [running]:\ngo.uber.org/zap/zapcore.CheckWriteAction.OnWrite(0x0?)\n\tgo.uber.org/zap@v1.27.1/zapcore/entry.go:196 +0x54\n" +
		"go.etcd.io/etcd/server/v3/storage/backend.(*batchTx).commit(0x38645a68d500, 0x0)\n\tgo.etcd.io/etcd/server/v3@v3.7.3/storage/backend/batch_tx.go:282 +0x48f\n"
	wePanic = "panic: runtime error: index out of range\n\ngoroutine 1 [running]:\ngithub.com/fairlead/fairlead/rollout/ledger.(*Ledger).Head(0x1)\n\tgithub.com/fairlead/fairlead/rollout/ledger/ledger.go:1\n" +
		"go.etcd.io/etcd/client/v3.(*Client).Get()\n"
)

// All panics of a log are found, and whose code each is.
func TestPanicked(t *testing.T) {
	for log, want := range map[string][]panicking{
		"time=1 msg=a\n" + wePanic + "time=2 msg=b\n" + etcdPanics: {{"panic: runtime error: index out of range", false}, {"panic: failed to commit tx", true}},
		"fatal error: concurrent map writes\n\ngoroutine 7 [running]:\ninternal/runtime/maps.fatal({0x1, 0x2})\n\tinternal/runtime/maps/fatal.go:1\ngo.etcd.io/bbolt.(*DB).Update(0x1)\n": {{"fatal error: concurrent map writes", true}},
		"time=1 level=ERROR msg=\"http: panic serving 10.77.1.11:1: boom\"\n": {{"time=1 level=ERROR msg=\"http: panic serving 10.77.1.11:1: boom\"", false}},
		"time=1 msg=\"no panic: all is well\"\n":                              nil,
	} {
		if is := panicked([]byte(log)); !slices.Equal(is, want) {
			t.Errorf("%q: %v", log, is)
		}
	}
	if said := lastWords([]byte("time=1 msg=a\nfairlead: one\ntime=2 msg=b\nfairlead: two\n")); said != "fairlead: two" {
		t.Errorf("the last words are %q", said)
	}
}

func TestRefused(t *testing.T) {
	if err := (&Options{Faults: 1001}).Check(); err == nil || !strings.Contains(err.Error(), "--faults 1001: must be 1 to 1000") {
		t.Error(err)
	}
}
