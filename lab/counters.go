package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/lab/netspace"
)

// kernelCounters are those of nstat that show a connection that was not left
// alone, or a stack that refused packets; each is told where it moved.
var kernelCounters = []string{
	"TcpAttemptFails", "TcpEstabResets", "TcpOutRsts", "TcpInCsumErrors", "TcpRetransSegs",
	"TcpExtTCPTimeouts", "TcpExtTCPAbortOnTimeout", "TcpExtTCPAbortOnData", "TcpExtTCPAbortOnClose",
	"TcpExtPAWSEstab", "TcpExtPAWSActive", "TcpExtTSEcrRejected", "TcpExtTCPChallengeACK", "TcpExtTCPSYNChallenge",
	"TcpExtSyncookiesSent", "TcpExtSyncookiesRecv", "TcpExtSyncookiesFailed", "TcpExtEmbryonicRsts",
	"TcpExtListenOverflows", "TcpExtListenDrops", "TcpExtTCPReqQFullDrop", "TcpExtTCPBacklogDrop",
}

// Counters are kernel counters by the name that nstat gives them.
type Counters map[string]uint64

// kernelCountersOf reads the counters of the machine's network.
func (l *Lab) kernelCountersOf(machine string) (Counters, error) {
	c := Counters{}
	err := netspace.In(l.namespace(machine), func() error {
		for _, file := range []string{"snmp", "netstat"} {
			// Of this thread: another one's network is another's.
			data, err := os.ReadFile("/proc/thread-self/net/" + file)
			if err != nil {
				return err
			}
			if err := c.read(data); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read kernel counters of %s: %w", machine, err)
	}
	return c, nil
}

// read takes in pairs of lines: "Tcp: NAME NAME …", "Tcp: VALUE VALUE …".
func (c Counters) read(data []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		names := strings.Fields(lines.Text())
		if !lines.Scan() {
			return fmt.Errorf("names without values: %.40q", names)
		}
		values := strings.Fields(lines.Text())
		if len(names) != len(values) || len(names) == 0 || names[0] != values[0] {
			return fmt.Errorf("%d names, %d values", len(names), len(values))
		}
		group := strings.TrimSuffix(names[0], ":")
		for i := 1; i < len(names); i++ {
			if v, err := strconv.ParseUint(values[i], 10, 64); err == nil { // MaxConn is -1
				c[group+names[i]] = v
			}
		}
	}
	return lines.Err()
}

// since are the kernelCounters that moved.
func (c Counters) since(before Counters) Counters {
	moved := Counters{}
	for _, name := range kernelCounters {
		if n := c[name] - before[name]; c[name] > before[name] {
			moved[name] = n
		}
	}
	return moved
}

func (c Counters) add(o Counters) {
	for name, n := range o {
		c[name] += n
	}
}

// countersBefore are the counters of client and servers at a scenario's
// start, by machine.
type countersBefore map[string]Counters

func (l *Lab) readCounters() (countersBefore, error) {
	all := countersBefore{}
	for _, m := range append([]string{"client"}, l.servers()...) {
		c, err := l.kernelCountersOf(m)
		if err != nil {
			return nil, err
		}
		all[m] = c
	}
	return all, nil
}

// moved adds up what moved since: at the client, and at the servers together.
func (l *Lab) moved(before countersBefore) (map[string]Counters, error) {
	now, err := l.readCounters()
	if err != nil {
		return nil, err
	}
	sums := map[string]Counters{"client": {}, "servers": {}}
	for m, c := range now {
		if m == "client" {
			sums[m].add(c.since(before[m]))
		} else {
			sums["servers"].add(c.since(before[m]))
		}
	}
	return sums, nil
}

// agentReasons adds up what the living servers' agents counted, by reason;
// those that counted nothing are left out.
func (l *Lab) agentReasons(ctx context.Context) Counters {
	sums := Counters{}
	for _, s := range l.servers() {
		if l.pid(s, s) == 0 {
			continue
		}
		status, err := l.daemonStatus(ctx, s)
		if err != nil {
			continue // stopped on purpose
		}
		for _, reason := range status.Reasons {
			if reason.Packets > 0 {
				sums[strings.ToLower(reason.Name)] += reason.Packets
			}
		}
	}
	return sums
}
