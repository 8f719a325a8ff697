package ctl

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// TestAuditTells: whatever a request has beside them, its line says which VIP and server
// it was about, and stays short.
func TestAuditTells(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"s1", "x", "ü", "世", "\"", "\x00"})
		long := rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(word.Draw(t, "word"), rapid.SampledFrom([]int{1, 255, 1024, 1025, 9000}).Draw(t, "times")) + word.Draw(t, "last")
		})
		m := &fairleadv1.RemoveServerRequest{Vip: long.Draw(t, "vip"), Server: long.Draw(t, "server"), Force: true,
			Without: rapid.SliceOfN(long, 0, 100).Draw(t, "without")}
		var got struct {
			VIP, Server string
			Force       bool
			Without     []string
		}
		line := what(m)
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for is, was := range map[string]string{got.VIP: m.Vip, got.Server: m.Server} {
			if begin := strings.TrimSuffix(is, "…"); begin == "" || !strings.HasPrefix(was, begin) || begin != was && len(begin) < maxField-utf8.UTFMax {
				t.Errorf("of %d bytes %q", len(was), is)
			}
		}
		if !got.Force || len(got.Without) != min(len(m.Without), maxList+1) {
			t.Errorf("%v, %d of %d", got.Force, len(got.Without), len(m.Without))
		}
		if len(line) > 64<<10 {
			t.Errorf("%d bytes", len(line))
		}
	})
	for _, one := range [][]string{slices.Repeat([]string{"s2"}, 5000), {strings.Repeat("s", 5000)}} {
		if line := what(&fairleadv1.RemoveServerRequest{Server: "s1", Without: one}); !strings.Contains(string(line), `"s1"`) || len(line) > 4<<10 {
			t.Errorf("%d bytes: %s", len(line), line)
		}
	}
}
