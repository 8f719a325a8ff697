package host

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// What Go says beside the programs' headers is what these say.
func TestConstantsAreTheHeaders(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("../../bpf/include/*.h")
	if err != nil {
		t.Fatal(err)
	}
	var headers strings.Builder
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		headers.Write(b)
	}
	for name, want := range map[string]int{
		"FL_CHAIN": buckets.Chain, "FL_BUCKET_NONE": buckets.None, "FL_NO_SLOT": tables.NoSlot,
		"FL_JOIN_PORT": tables.JoinPortFirst, "FL_HOST_SOURCES": tables.MaxSources,
		"FL_GENERATION_AHEAD": beamer.GenerationAhead, "FL_PEER_IPV6": peerIPv6, "FL_PEER_UNRESOLVED": peerUnresolved,
	} {
		m := regexp.MustCompile(fmt.Sprintf(`(?m)^#define %s (\w+)`, name)).FindStringSubmatch(headers.String())
		if m == nil {
			t.Errorf("no header has %s", name)
			continue
		}
		if got, err := strconv.ParseInt(m[1], 0, 64); err != nil || int(got) != want {
			t.Errorf("%s is %s in the header, %d here", name, m[1], want)
		}
	}
	if wire.HopsChain != buckets.Chain || wire.NoServer != buckets.None {
		t.Error("wire and controller/buckets differ on what a chain is")
	}
}
