package fabric

import (
	"github.com/fairlead/fairlead/controller"
)

// DesiredOf is what a switch of assignment a shall have: the addresses of the
// VIPs of scheme faild, which share one pool and one table (that of the VIP
// with the lowest id). It refuses pools whose servers' numbers differ, and
// what the kernel's groups cannot hold. ok is false where a has no such VIP.
func DesiredOf(a *controller.Assignment) (d Desired, ok bool, err error) {
	return Desired{}, false, errWritten
}
