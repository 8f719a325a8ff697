package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestLegible: what another machine says moves no terminal, neither in a table nor in an
// error.
func TestLegible(t *testing.T) {
	const said, want = "a\x1b]0;b\a\u009b2J\r\n\té\n", "a ]0;b  2J \n\té\n"
	var out, errs strings.Builder
	if err := PrintAs(&out, "table", nil, func(w io.Writer) error { _, err := io.WriteString(w, said); return err }); err != nil || out.String() != want {
		t.Errorf("%q %v", out.String(), err)
	}
	cmd := &cobra.Command{Use: "x"}
	cmd.AddCommand(&cobra.Command{Use: "y", RunE: func(*cobra.Command, []string) error { return errors.New("a\x1b[2J\nb\r\n") }})
	if Run(context.Background(), cmd, []string{"y"}, strings.NewReader(""), &out, &errs); errs.String() != "fairlead: a [2J\nfairlead: b\n" {
		t.Errorf("%q", errs.String())
	}
}
