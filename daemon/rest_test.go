package daemon

import (
	"context"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// TestOwnPages: nothing is given back that could not be read again.
func TestOwnPages(t *testing.T) {
	const smaps = `00400000-016a8000 r-xp 00000000 fe:00 1 /bin/fairlead
Size:              19104 kB
Anonymous:             0 kB
016a8000-02d3b000 r--p 012a8000 fe:00 1 /bin/fairlead
Anonymous:             8 kB
02d3b000-02d3c000 rw-p 0293b000 fe:00 1 /bin/fairlead
Anonymous:             0 kB
02d3c000-02d3d000 r--s 0293b000 fe:00 1 /bin/fairlead
Anonymous:             0 kB
02d3d000-02d3e000 r--p 00000000 fe:00 2 /lib/fairlead
Anonymous:             0 kB
02d3e000-02d3f000 r--p 00000000 00:00 0
Anonymous:             0 kB
`
	if is, want := ownPages([]byte(smaps), "/bin/fairlead"), []pages{{0x400000, 0x16a8000}}; !reflect.DeepEqual(is, want) {
		t.Errorf("%x, want %x", is, want)
	}
}

// TestGiveBack: this process has less afterwards, and goes on.
func TestGiveBack(t *testing.T) {
	garbage := make([]byte, 64<<20)
	for i := range garbage {
		garbage[i] = 1
	}
	runtime.KeepAlive(garbage)
	before := resident(t)
	if err := giveBack(); err != nil {
		t.Fatal(err)
	}
	if after := resident(t); after > before-60<<10 {
		t.Errorf("%d kB resident, %d before", after, before)
	}
}

// TestRestEvery: garbage made later is given back, too.
func TestRestEvery(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // nobody else collects it
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { restEvery(ctx, 10*time.Millisecond); close(done) }()
	defer func() { cancel(); <-done }()
	garbage := make([]byte, 64<<20)
	for i := range garbage {
		garbage[i] = 1
	}
	before := resident(t)
	runtime.KeepAlive(garbage)
	for deadline := time.Now().Add(10 * time.Second); resident(t) > before-60<<10; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d kB resident, %d with the garbage", resident(t), before)
		}
	}
}

// resident is VmRSS, in kB.
func resident(t *testing.T) (kb int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); f[0] == "VmRSS:" {
			for _, c := range f[1] {
				kb = kb*10 + int(c-'0')
			}
		}
	}
	return kb
}

// TestSettle: at rest there is one processor, and all when somebody wants them, or works.
func TestSettle(t *testing.T) {
	all := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(all)
	t.Setenv("GOMAXPROCS", "") // t.Setenv gives it back
	os.Unsetenv("GOMAXPROCS")
	var p procs
	one := func(what string, want bool) {
		t.Helper()
		if n := runtime.GOMAXPROCS(0); p.resting != want || (n == 1) != (want || runtime.NumCPU() == 1) {
			t.Errorf("%s: %d processors, resting %t", what, n, p.resting)
		}
	}
	p.settle(0.3, time.Second)
	one("at work", false)
	p.wanted = time.Now()
	p.settle(0, time.Hour)
	one("wanted a moment ago", false)
	p.settle(0, 0)
	one("at rest", true)
	p.settle(0.3, 0)
	one("a little to do", true)
	p.settle(0.7, 0)
	one("much to do", false)
	p.settle(0, 0)
	one("at rest again", true)
	p.awake()
	one("a change has come", false)
	t.Setenv("GOMAXPROCS", "2")
	p.settle(0, 0)
	one("told how many", false)
}
