package dataplane

import "fmt"

// reasonNames are the reasons of FL_REASONS as metrics, status and trace call
// them. The prefix is the verdict: pass, forward, reply, ask or drop.
var reasonNames = [lbFlReasonFL_REASON_COUNT]string{
	lbFlReasonFL_PASS_NOT_IP:           "pass_not_ip",
	lbFlReasonFL_PASS_NO_VIP:           "pass_no_vip",
	lbFlReasonFL_PASS_VIP_OTHER:        "pass_vip_other",
	lbFlReasonFL_PASS_NOT_MINE:         "pass_not_mine",
	lbFlReasonFL_FORWARD_NEW:           "forward_new",
	lbFlReasonFL_FORWARD_NO_TIMESTAMP:  "forward_no_timestamp",
	lbFlReasonFL_FORWARD_UDP:           "forward_udp",
	lbFlReasonFL_FORWARD_BAD_COOKIE:    "forward_bad_cookie",
	lbFlReasonFL_FORWARD_STATELESS:     "forward_stateless",
	lbFlReasonFL_FORWARD_ICMP:          "forward_icmp",
	lbFlReasonFL_FORWARD_FRAGMENT:      "forward_fragment",
	lbFlReasonFL_REPLY_ECHO:            "reply_echo",
	lbFlReasonFL_REPLY_TOO_BIG:         "reply_too_big",
	lbFlReasonFL_ASK_RST:               "ask_rst",
	lbFlReasonFL_ASK_ICMP:              "ask_icmp",
	lbFlReasonFL_DROP_MALFORMED_IP:     "drop_malformed_ip",
	lbFlReasonFL_DROP_MALFORMED_L4:     "drop_malformed_l4",
	lbFlReasonFL_DROP_MALFORMED_OPTION: "drop_malformed_option",
	lbFlReasonFL_DROP_FRAGMENT:         "drop_fragment",
	lbFlReasonFL_DROP_NO_SERVER:        "drop_no_server",
	lbFlReasonFL_DROP_UNRESOLVED:       "drop_unresolved",
	lbFlReasonFL_DROP_TOO_BIG:          "drop_too_big",
	lbFlReasonFL_DROP_ASK_LIMIT:        "drop_ask_limit",
	lbFlReasonFL_DROP_ECHO:             "drop_echo",
	lbFlReasonFL_DROP_HEADROOM:         "drop_headroom",
}

// ReasonName is the name of a reason's number.
func ReasonName(reason uint32) string {
	if int(reason) < len(reasonNames) {
		return reasonNames[reason]
	}
	return fmt.Sprintf("reason_%d", reason)
}
