package packets

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/soak"
)

func config() Config {
	return Config{Rate: 100e6, Delay: sim.Second / 100_000, Buffer: 100, MinRTO: 200 * sim.Millisecond}
}

// play runs connections over one link after the other: paths name forward links;
// acknowledgements come back over links of their own.
func play(t *testing.T, c Config, links int, until sim.Time, connections ...[][]int32) (shares []float64, counts Counts) {
	t.Helper()
	n := New(c, 2*links, rand.New(rand.NewPCG(1, 1)))
	for i, paths := range connections {
		var all []Path
		var begin []sim.Time
		for j, forward := range paths {
			p := Path{Forward: forward}
			for k := range forward {
				p.Back = append(p.Back, forward[len(forward)-1-k]+int32(links))
			}
			all = append(all, p)
			begin = append(begin, sim.Time(i*7+j*3)*sim.Millisecond)
		}
		n.Connect(all, begin)
	}
	if err := n.Run(context.Background(), until); err != nil {
		t.Fatal(err)
	}
	all := float64(until) / float64(n.segment)
	for i := range connections {
		shares = append(shares, float64(n.Received(i))/all)
	}
	return shares, n.Counts()
}

func TestOneFillsALink(t *testing.T) {
	shares, counts := play(t, config(), 3, 10*sim.Second, [][]int32{{0, 1, 2}})
	if shares[0] < 0.95 || shares[0] > 1 {
		t.Errorf("%.3f of the link, %+v", shares[0], counts)
	}
}

func TestShared(t *testing.T) {
	shares, counts := play(t, config(), 4, 20*sim.Second, [][]int32{{0, 3}}, [][]int32{{1, 3}}, [][]int32{{2, 3}})
	for i, s := range shares {
		if s < 0.2 || s > 0.47 {
			t.Errorf("connection %d has %.3f of the link, %+v", i, s, counts)
		}
	}
	if sum := shares[0] + shares[1] + shares[2]; sum < 0.95 || sum > 1 {
		t.Errorf("together %.3f", sum)
	}
}

// Subflows of one connection on one link take no more than a connection with
// one; without coupling they would take four fifths.
func TestCoupled(t *testing.T) {
	shares, counts := play(t, config(), 3, 30*sim.Second, [][]int32{{0, 2}, {0, 2}, {0, 2}, {0, 2}}, [][]int32{{1, 2}})
	if shares[0] < 0.35 || shares[0] > 0.68 || shares[0]+shares[1] < 0.95 {
		t.Errorf("%.3f with four subflows, %.3f with one, %+v", shares[0], shares[1], counts)
	}
}

// A connection takes what is free; of a link that it shares with another it
// takes no more than half.
func TestTakesWhatIsFree(t *testing.T) {
	shares, counts := play(t, config(), 5, 30*sim.Second, [][]int32{{0, 2}, {1, 3}}, [][]int32{{4, 3}})
	if shares[0] < 1.4 || shares[1] < 0.42 || shares[0]+shares[1] < 1.95 {
		t.Errorf("%.3f on two links, %.3f on one of them, %+v", shares[0], shares[1], counts)
	}
}

// Queues of no more than four segments: losses, timeouts, and still everything
// arrives in its order, nothing twice.
func TestLosses(t *testing.T) {
	c := config()
	c.Buffer = 4
	shares, counts := play(t, c, 3, 20*sim.Second, [][]int32{{0, 2}}, [][]int32{{1, 2}})
	if counts.Lost == 0 || counts.Again == 0 || counts.Timeouts == 0 {
		t.Errorf("%+v", counts)
	}
	if sum := shares[0] + shares[1]; sum < 0.3 || sum > 1 {
		t.Errorf("%v, %+v", shares, counts)
	}
}

func TestReceiver(t *testing.T) {
	seed := soak.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	var r receiver
	got := map[int32]bool{}
	for range 100_000 {
		number := max(0, r.expected+int32(random.IntN(window))-10)
		got[number] = true
		r.receive(number)
		for next := r.expected - 1; next >= 0 && next > r.expected-20; next-- {
			if !got[next] {
				t.Fatalf("seed %d: %d expected, %d never came", seed, r.expected, next)
			}
		}
		if got[r.expected] {
			t.Fatalf("seed %d: %d came and is expected", seed, r.expected)
		}
	}
}

func BenchmarkSegment(b *testing.B) {
	n := New(config(), 6, rand.New(rand.NewPCG(1, 1)))
	n.Connect([]Path{{Forward: []int32{0, 1, 2}, Back: []int32{3, 4, 5}}}, []sim.Time{0})
	for b.Loop() {
		if err := n.Run(context.Background(), n.now+n.segment); err != nil {
			b.Fatal(err)
		}
	}
}
