package access

import (
	"fmt"
	"path"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
)

// need is who may call a method.
type need struct {
	role Role
	// machine: every machine of the deployment, too.
	machine bool
	// looks: it changes nothing, so that force and without need no more.
	looks bool
}

var (
	looking   = need{role: View, looks: true}
	operating = need{role: Operate}
	ruling    = need{role: Administer}
	// peers ask each other: keys are in the answers, or tables are filled from them.
	peers = need{role: machines, machine: true}
	// placing is of hosts, and of whoever operates.
	placing = need{role: Operate, machine: true}
)

// methods is every method of the API, by procedure.
var methods = map[string]need{
	fairleadv1connect.ControlGetConfigProcedure:      looking,
	fairleadv1connect.ControlGetHistoryProcedure:     looking,
	fairleadv1connect.ControlGetControllersProcedure: looking,
	fairleadv1connect.ControlDescribeProcedure:       looking,
	fairleadv1connect.ControlWatchEventsProcedure:    looking,
	fairleadv1connect.ControlPlanProcedure:           looking,
	fairleadv1connect.ControlDrainServerProcedure:    operating,
	fairleadv1connect.ControlUndrainServerProcedure:  operating,
	fairleadv1connect.ControlAddServerProcedure:      operating,
	fairleadv1connect.ControlRemoveServerProcedure:   operating,
	fairleadv1connect.ControlSetWeightProcedure:      operating,
	fairleadv1connect.ControlRotateKeyProcedure:      ruling,
	fairleadv1connect.ControlApplyProcedure:          ruling,
	fairleadv1connect.ControlRollbackProcedure:       ruling,
	fairleadv1connect.ControlReloadProcedure:         ruling,

	fairleadv1connect.FairleadGetStatusProcedure:       looking,
	fairleadv1connect.FairleadGetAssignmentProcedure:   peers,
	fairleadv1connect.FairleadGetTimeProcedure:         looking,
	fairleadv1connect.FairleadGetLiveProcedure:         looking,
	fairleadv1connect.FairleadGetHadProcedure:          peers,
	fairleadv1connect.FairleadGetServingProcedure:      looking,
	fairleadv1connect.FairleadGetConnectionsProcedure:  looking,
	fairleadv1connect.FairleadMoveConnectionsProcedure: operating,
	fairleadv1connect.FairleadAwaitServingProcedure:    looking,
	fairleadv1connect.FairleadGetChainsProcedure:       looking,
	fairleadv1connect.FairleadDrainSwitchProcedure:     operating,
	fairleadv1connect.FairleadUnlockSwitchProcedure:    operating,
	fairleadv1connect.FairleadGetRoutesProcedure:       looking,
	fairleadv1connect.FairleadShareFlowsProcedure:      peers,
	fairleadv1connect.FairleadGetFlowsProcedure:        peers,
	fairleadv1connect.FairleadReloadProcedure:          ruling,

	fairleadv1connect.PathsGetFabricProcedure:   looking,
	fairleadv1connect.PathsListPathsProcedure:   looking,
	fairleadv1connect.PathsGetPortsProcedure:    looking,
	fairleadv1connect.PathsGetPathProcedure:     looking,
	fairleadv1connect.PathsListFlowsProcedure:   looking,
	fairleadv1connect.PathsPlaceFlowProcedure:   placing,
	fairleadv1connect.PathsPlaceAgainProcedure:  placing,
	fairleadv1connect.PathsRenewFlowProcedure:   placing,
	fairleadv1connect.PathsReleaseFlowProcedure: placing,
	fairleadv1connect.PathsReportLoadProcedure:  placing,
	fairleadv1connect.PathsReloadProcedure:      ruling,
}

// Known says whether there is a procedure.
func Known(procedure string) bool {
	_, known := methods[procedure]
	return known
}

// Changes says whether a method changes anything.
func Changes(procedure string) bool { return !methods[procedure].looks }

// Needed is the role that a method needs, where the request has neither force nor without.
func Needed(procedure string) Role { return methods[procedure].role }

// Denied is why a call is not carried out.
type Denied struct {
	Caller Caller
	Needed Role
	What   string // the method, with force or without daemons where it was
}

func (d *Denied) Error() string {
	if d.Caller.Name == "" {
		return d.What + ": nobody was authenticated"
	}
	if d.Needed == machines {
		return fmt.Sprintf("%s is for machines of the deployment, and %s, of role %s, is none", d.What, d.Caller.Name, d.Caller.Role)
	}
	text := fmt.Sprintf("%s needs the role %s, and %s has %s", d.What, d.Needed, d.Caller.Name, d.Caller.Role)
	if d.Caller.Machine && d.Caller.Role == View {
		there := "run it as root on the machine that is asked (a controller's: --api unix:…)"
		if d.What == "Reload" { // a daemon's api with an address has no socket for root beside it
			there = "send it SIGHUP as root on its machine (`systemctl reload`)"
		}
		text += fmt.Sprintf(", as a machine's certificate: %s, or with a user's certificate (`fairlead certs FOLDER --user NAME --role %s`, then --certs)", there, d.Needed)
	}
	return text
}

// Check says whether a caller may call a procedure, with that request (nil: it is not
// known yet).
func Check(caller Caller, procedure string, request any) error {
	n, known := methods[procedure]
	what := path.Base(procedure)
	if !known {
		return &Denied{caller, machines, what}
	}
	if n.machine && caller.Machine {
		return nil
	}
	if !n.looks && n.role < Administer {
		if how := forced(request); how != "" {
			n.role, what = Administer, what+how
		}
	}
	if caller.Role < n.role {
		return &Denied{caller, n.role, what}
	}
	return nil
}

// forced is how a request may break connections: with force, or without daemons, whose
// connections are not counted then; "": it does not.
func forced(request any) string {
	m, ok := request.(proto.Message)
	if !ok {
		return ""
	}
	r := m.ProtoReflect()
	fields := r.Descriptor().Fields()
	if f := fields.ByName("force"); f != nil && r.Get(f).Bool() {
		return " with force"
	}
	if f := fields.ByName("without"); f != nil && r.Has(f) {
		return " without daemons"
	}
	return ""
}
