package router

import (
	"errors"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/ethtool"
	"github.com/fairlead/fairlead/kernel/rtnl"
)

// rtnetlink is what a follower asks the kernel of one network namespace by.
type rtnetlink struct {
	*rtnl.Conn
	offloads *ethtool.Socket
}

// openKernel belongs to the network namespace of the calling thread.
func openKernel() (*rtnetlink, error) {
	conn, err := rtnl.Open()
	if err != nil {
		return nil, err
	}
	offloads, err := ethtool.Open()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &rtnetlink{conn, offloads}, nil
}

func (k *rtnetlink) close() error { return errors.Join(k.Conn.Close(), k.offloads.Close()) }

// list asks for all objects of a kind. data is the header that the kind has,
// with what narrows the list behind it.
func (k *rtnetlink) list(kind uint16, data []byte) ([]netlink.Message, error) {
	return k.Ask(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | netlink.Dump}, Data: data,
	})
}

// groups are the notifications that concern a router.
var groups = []uint32{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_NEXTHOP,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
	unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
}
