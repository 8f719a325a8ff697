package rollout

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
)

// A series of versions may stop in the middle: who made it is gone. Its text came with
// the first of them, and the head says whether more are to come (ledger.Head.Left):
//
//	apply: v7 (text, Left) ─▶ v8 (Left) ─✗          the controller dies
//	leader, after quiet:     v8 ─▶ plan of the text ─▶ v9
//	                               └─ refused: a warning, until somebody forces it
//
// Left is said only where the text wants just what the series ends in. A text that differs
// from what is in force for other reasons (a verb that it cannot say) is nobody's to bring
// but an operator's: the leader undoes nothing that it does not understand.

// A verb in between leaves the rest to be brought: it comes from the text as it is then.

// finish brings the rest of the series that head is of.
func (c *Coordinator) finish(ctx context.Context, head ledger.Head, p *pace) (done []string, err error) {
	reading, cancel := context.WithTimeout(ctx, storeTimeout)
	text, err := c.Ledger.Text(reading, head.Desired)
	cancel()
	if err != nil || text == nil {
		return nil, err
	}
	to, err := c.toText(ctx, config.OfVersion(head.Desired.Version), text, false)
	if err != nil {
		return nil, err
	}
	to.why = fmt.Sprintf("the rest of what version %d began", head.Desired.Version)
	ch, err := c.apply(ctx, to, Options{Expect: head.Version})
	p.unfinished = ""
	if refused := (controller.Refusal)(nil); errors.As(err, &refused) {
		p.unfinished = fmt.Sprintf("version %d is one of a series that stopped half way, and the rest is refused as things stand: %v; `fairlead apply` goes on from here, with --force if that is meant", head.Version, refused)
	}
	if ch != nil && err == nil {
		done = ch.Lines
	}
	return done, err
}

// left is whether more than ch is to come until the desired state is in force, of the
// series that ch is or of one before it that stopped half way. before: in the middle of ch;
// after: when it is done.
func (c *Coordinator) left(ch *Change) (before, after bool) {
	rest := ch.view.head.Left && ch.view.text != nil // of one before
	if len(ch.Steps) == 0 || len(ch.Steps) == 1 && !rest {
		return false, false
	}
	text := ch.text
	if text == nil {
		text = ch.view.text
	}
	if text == nil {
		return false, false
	}
	cfg, err := c.Memo.desired(c.Config(), theFile, text)
	if err != nil {
		return false, false
	}
	wants, err := differs(cfg, ch.Steps[len(ch.Steps)-1])
	if err != nil || wants == 0 {
		return err == nil, false
	}
	if !rest {
		return false, false
	}
	wanted, err := differs(ch.view.cfg, ch.view.Base)
	rest = err == nil && wants <= wanted // or it wants what ch does to be undone
	return rest, rest
}
