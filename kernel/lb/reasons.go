package lb

import "github.com/fairlead/fairlead/bpf"

// reasonNames are the reasons of FL_REASONS as metrics, status and trace call
// them. The prefix is the verdict: pass, forward, reply, ask or drop.
var reasonNames = bpf.Names[bpf.Reason](bpf.ReasonCount)
