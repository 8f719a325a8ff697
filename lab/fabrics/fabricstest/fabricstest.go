// Package fabricstest is what tests do to fabrics, and no scenario does.
package fabricstest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/fabrics"
	"github.com/fairlead/fairlead/lab/netspace"
)

// Run runs a command in a node and returns what it printed. It ends with the
// context.
func Run(ctx context.Context, f *fabrics.Fabric, node string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := netspace.Start(f.Namespace(node), cmd); err != nil {
		return "", fmt.Errorf("start %s in %s: %w", args[0], node, err)
	}
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("%s in %s: %w: %s%s", strings.Join(args, " "), node, err, out.String(), problems.String())
	}
	return out.String(), nil
}

// Lose makes a wire lose that share of all packets, 0 to 1, at random in each
// direction. Its carrier stays: nobody is told.
func Lose(f *fabrics.Fabric, link int, share float64) error {
	return f.EachWireDevice(link, "lose on", func(device netlink.Link) error { return lose(device, share) })
}

func lose(device netlink.Link, share float64) error {
	ingress := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: device.Attrs().Index, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0),
	}}
	if err := netlink.QdiscDel(ingress); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("take loss away: %w", err)
	}
	if share == 0 {
		return nil
	}
	p, err := loser(share)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := netlink.QdiscAdd(ingress); err != nil {
		return fmt.Errorf("add clsact: %w", err)
	}
	err = netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: device.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
		Fd:          p.FD(), Name: "fl_lab_lose", DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("attach loss: %w", err)
	}
	return nil
}

// loser is the program that drops that share.
func loser(share float64) (*ebpf.Program, error) {
	const pass, drop = -1, 2                      // TC_ACT_UNSPEC, TC_ACT_SHOT
	least := int64(math.Round(share * (1 << 32))) // numbers below it are lost
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "fl_lab_lose", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.FnGetPrandomU32.Call(),
		asm.LoadImm(asm.R1, least, asm.DWord),
		asm.Mov.Imm32(asm.R2, 0),
		asm.JLT.Reg(asm.R0, asm.R1, "lose"),
		asm.Mov.Imm(asm.R0, pass),
		asm.Return(),
		asm.Mov.Imm(asm.R0, drop).WithSymbol("lose"),
		asm.Return(),
	}})
	if err != nil {
		return nil, fmt.Errorf("load program that loses packets: %w", err)
	}
	return p, nil
}
