package ctl

import (
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/store/embedded"
)

// room is what the audit log has of a store that was full.
type room struct {
	Before uint64 `json:"bytes_before"`
	After  uint64 `json:"bytes_after"`
}

// roomMade tells what came of making room in this controller's store: in log, audit and
// metrics.
func (c *ctl) roomMade(r embedded.Room) {
	line := auditLine{At: time.Now().UTC(), Who: "controller " + c.Name, Role: "none", Call: "store/room", Outcome: "done"}
	line.What, _ = json.Marshal(room{r.Before, r.After}) // of numbers: it cannot fail
	if !r.Made {
		line.Outcome, line.Error = "failed", "what it has is too much, without all that was before: docs/store.md says what to do"
	}
	c.meters.rooms.WithLabelValues(line.Outcome).Inc()
	c.audit.write(line)
	daemon.Poke(c.say) // the warning comes, or goes
}
