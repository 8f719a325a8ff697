package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestBenchPrints is a hand's tool: FAIRLEAD_BENCH=1 go test -v -run Prints ./bench
func TestBenchPrints(t *testing.T) {
	if os.Getenv("FAIRLEAD_BENCH") == "" {
		return
	}
	r, err := Run(context.Background(), Options{Rounds: 20, Only: strings.Fields(os.Getenv("FAIRLEAD_CASES"))})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(r.Kernel, r.CPU, r.HarnessNS)
	for _, c := range r.Cases {
		fmt.Printf("%-22s %6.1f %6.1f %6.1f  %.2f\n", c.Name, c.NS, c.Min, c.Max, c.Ratio)
	}
}
