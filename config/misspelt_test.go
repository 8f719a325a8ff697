package config

import (
	"strings"
	"testing"
)

// What is wrong beside a word that there is not is told together with it: nobody
// shall mend one and meet the next.
func TestProblemsBesideAMisspeltWord(t *testing.T) {
	for vip, want := range map[string][]string{
		"port: 80, protocol: tpc, scheme: jet, policy: rr":             {"vips[0].protocol: tpc", "vips[0].policy: rr"},
		"port: http, scheme: jet, mptcp: true":                         {"vips[0].port", "vips[0].mptcp"},
		"scheme: beamer, protocol: udp, mptcp: true, forwarding: ipip": {"vips[0].port", "vips[0].mptcp"},
	} {
		_, err := Parse("f.yaml", []byte("secret: 000102030405060708090a0b0c0d0e0f\nbalancers: [{name: lb1, interfaces: [eth0], source: 10.0.0.1/32}]\nservers: [{name: s1, address: 10.0.0.21}]\nvips: [{name: a, address: 192.0.2.1, "+vip+", servers: [s1]}]\n"))
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %q", vip, err, w)
			}
		}
	}
}
