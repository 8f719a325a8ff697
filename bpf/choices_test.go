package bpf_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/vip"
)

// The numbers and names of package vip's rows are C's, and every one of C's has
// a row.
func TestChoices(t *testing.T) {
	for n := range 256 {
		for what, names := range map[string][2]string{
			"scheme-":     {bpf.Scheme(n).String(), string(vip.SchemeOf(uint8(n)).Name)},
			"carrier-":    {bpf.Carrier(n).String(), string(vip.CarrierOf(uint8(n)).Name)},
			"policy-":     {bpf.Policy(n).String(), string(vip.PolicyOf(uint8(n)).Name)},
			"forwarding-": {bpf.Forwarding(n).String(), string(vip.ForwardingOf(uint8(n)).Name)},
		} {
			c, row := strings.ReplaceAll(names[0], "_", "-"), names[1]
			if strings.HasPrefix(c, what) || bpf.Forwarding(n) == bpf.FwdNone && c == "none" {
				c = "" // C knows no such number
			}
			if c != row {
				t.Errorf("%s%d: %q in C, %q in vip", what, n, c, row)
			}
		}
	}
}
