package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
)

// storeView is what a controller says of the store, for status; nil: nobody was asked.
type storeView struct {
	controllersResult
	silent string // why no controller says it, "": one does
}

// askStore asks for it.
func askStore(cmd *cobra.Command, c *control, timeout time.Duration) *storeView {
	resp, err := askControl(c, cmd, timeout, func(ctx context.Context, c controlClient) (*connect.Response[fairleadv1.GetControllersResponse], error) {
		return c.GetControllers(ctx, connect.NewRequest(&fairleadv1.GetControllersRequest{}))
	})
	if err != nil {
		return &storeView{silent: api.ErrorText(err)}
	}
	return &storeView{controllersResult: controllersOf(resp)}
}

// print is its part of the table.
func (s *storeView) print(w io.Writer) {
	switch {
	case s == nil:
	case s.silent != "":
		fmt.Fprintf(w, "Store: not known. %s\n\n", s.silent)
	default:
		s.table(w)
		fmt.Fprintf(w, "\n%s.\n\n", strings.ToUpper(s.force()[:1])+s.force()[1:])
	}
}

// warnings are of daemons that have something else than the store, and the controllers'
// own.
func (s *storeView) warnings(answers []answer) (all []warning) {
	if s == nil || s.silent != "" {
		return nil
	}
	other, ahead := warning{}, warning{}
	for _, a := range answers {
		if !hasAssignment(a) {
			continue
		}
		digest := a.status.AssignmentDigest
		switch v := a.status.AssignmentVersion; {
		case v > s.Version:
			ahead.Daemons = append(ahead.Daemons, a.name)
		case v == s.Version && s.Digest != "" && len(digest) > 0 && hex.EncodeToString(digest) != s.Digest:
			other.Daemons = append(other.Daemons, a.name)
		}
	}
	if len(other.Daemons) > 0 {
		other.Text = fmt.Sprintf("goes by another version %d than the store has (digest %.12s): fairlead apply brings all to one", s.Version, s.Digest)
		all = append(all, other)
	}
	if len(ahead.Daemons) > 0 {
		ahead.Text = fmt.Sprintf("is ahead of the store, which has version %d: it was put back from an older copy; the next fairlead apply brings the newest into it", s.Version)
		all = append(all, ahead)
	}
	for _, c := range s.Controllers {
		for _, text := range c.Warnings {
			all = append(all, warning{text, []string{c.Name}})
		}
		if !c.Alive {
			all = append(all, warning{"the store has not heard of this controller for some seconds: start it again, or see its log", []string{c.Name}})
		}
	}
	return all
}

// value is its part of the stable form.
func (s *storeView) value() map[string]any {
	if s == nil {
		return nil
	}
	m := map[string]any{"error": s.silent, "version": s.Version, "digest": s.Digest, "in_force": s.InForce, "controllers": s.Controllers}
	if s.Controllers == nil {
		m["controllers"] = []controllerResult{}
	}
	return m
}

// differs: some daemon has another assignment than the store under its version.
func (s *storeView) differs(answers []answer) bool {
	for _, w := range s.warnings(answers) {
		if strings.HasPrefix(w.Text, "goes by another version") {
			return true
		}
	}
	return false
}
