package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/fairlead/fairlead/lab/netspace"
)

// Status is what `lab status -o json` prints.
type Status struct {
	Lab
	Folder string `json:"folder"`
	Config string `json:"config"`
	// The first VIP, as curl takes it.
	URL      string          `json:"url"`
	Machines []MachineStatus `json:"machines"`
}

// MachineStatus is a machine of a lab.
type MachineStatus struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Addresses string `json:"addresses"`
	// Daemon is the fairlead daemon's name and Pid its process, 0 if it does
	// not run.
	Daemon string `json:"daemon,omitempty"`
	Pid    int    `json:"pid,omitempty"`
	// State is answers, silent or stopped.
	State  string `json:"state,omitempty"`
	Socket string `json:"socket,omitempty"`
	Log    string `json:"log,omitempty"`
	PinDir string `json:"pin_dir,omitempty"`
}

// URL is where the lab's web VIP answers.
func (l *Lab) URL() string {
	for _, v := range l.VIPs {
		if v.Port == httpPort && v.Address.Is6() == l.IPv6 {
			return "http://" + strings.TrimSuffix(v.Endpoint(), ":80") + "/"
		}
	}
	return "http://" + l.VIPs[0].Endpoint() + "/"
}

// Status looks at every machine.
func (l *Lab) Status(ctx context.Context) Status {
	s := Status{Lab: *l, Folder: l.Dir(), Config: l.ConfigPath(), URL: l.URL()}
	add := func(name, address4, address6 string) {
		s.Machines = append(s.Machines, MachineStatus{Name: name, Namespace: l.namespace(name), Addresses: address4 + " " + address6})
	}
	add("client", clientAddress4, clientAddress6)
	add("router", gatewayOfClient4+" "+gateway4, gatewayOfClient6+" "+gateway6)
	for n, m := range l.fronts() {
		add(m, lbAddress4(n+1), lbAddress6(n+1))
	}
	for n, m := range l.servers() {
		if l.faild() {
			add(m, behindSwitch4(1, n+1), behindSwitch6(1, n+1))
		} else {
			add(m, serverAddress4(n+1), serverAddress6(n+1))
		}
	}
	for i := range s.Machines[2:] {
		if m := &s.Machines[2+i]; !l.Plain {
			l.daemonState(ctx, m)
		}
	}
	return s
}

func (l *Lab) daemonState(ctx context.Context, m *MachineStatus) {
	m.Daemon, m.Socket, m.Log = l.daemonName(m.Name), l.socket(m.Name), l.path(m.Name+".log")
	m.State = "stopped"
	if m.Pid = l.pid(m.Name, m.Name); m.Pid == 0 {
		return
	}
	m.State = "silent"
	if status, err := l.daemonStatus(ctx, m.Name); err == nil {
		m.State, m.PinDir = "answers", status.PinDir
	}
}

// Print is the table of `lab status`.
func (s Status) Print(w io.Writer) error {
	fmt.Fprintf(w, "lab %s: %s, scheme %s, policy %s, forwarding %s\nconfiguration %s\n\n", s.Name, s.URL, s.Scheme, s.Policy, s.Forwarding, s.Config)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MACHINE\tNAMESPACE\tADDRESSES\tDAEMON\tPID\tSTATE")
	for _, m := range s.Machines {
		pid := ""
		if m.Pid != 0 {
			pid = fmt.Sprint(m.Pid)
		}
		fmt.Fprintln(t, strings.Join([]string{m.Name, m.Namespace, m.Addresses, m.Daemon, pid, m.State}, "\t"))
	}
	return t.Flush()
}

// Describe tells what `lab up` has made and what to try; program is how the
// user calls fairlead.
func (l *Lab) Describe(w io.Writer, program string) {
	flag, suffix := "", ""
	if l.Name != "lab" {
		flag, suffix = " --lab "+l.Name, " "+l.Name
	}
	web := ""
	for _, v := range l.VIPs {
		if v.Port == httpPort {
			web += " http://" + strings.TrimSuffix(v.Endpoint(), ":80") + "/"
		}
	}
	if l.faild() {
		fmt.Fprintf(w, "VIP%s\n%d servers, %d switches; scheme faild\n\nTry:\n", web, l.Servers, l.LBs)
	} else {
		fmt.Fprintf(w, "VIP%s\n%d servers, %d balancers; scheme %s, policy %s, forwarding %s\n\nTry:\n",
			web, l.Servers, l.LBs, l.Scheme, l.Policy, l.Forwarding)
	}
	client := fmt.Sprintf("lab exec%s client -- ", flag)
	file := " -f " + l.ConfigPath()
	lines := []string{
		client + "curl -s " + shellQuoted(l.URL()),
		client + "wrk -t2 -c50 -d5s " + shellQuoted(l.URL()),
		client + "curl -so /dev/null " + shellQuoted(l.URL()+"bytes/100000000"),
		l.iperfCommand(client),
		"status" + file,
		"drain " + l.daemonName(fmt.Sprint("server", min(2, l.Servers))) + file,
		l.traceCommand(),
		"lab kill" + flag + " " + l.front(1) + "   (and: lab start" + flag + " " + l.front(1) + ")",
		"lab status" + flag,
		"lab down" + suffix,
	}
	for _, line := range lines {
		if line == "" || l.Plain && needsDaemon(line) {
			continue
		}
		fmt.Fprintf(w, "  %s %s\n", program, line)
	}
}

// needsDaemon tells the suggestions that mean nothing without balancers and
// agents.
func needsDaemon(line string) bool {
	return slices.ContainsFunc([]string{"status -f", "drain ", "trace ", "lab kill "}, func(verb string) bool { return strings.HasPrefix(line, verb) })
}

// iperfCommand asks for a VIP whose connections of one client meet one server,
// which iperf3 needs. Empty if there is none.
func (l *Lab) iperfCommand(client string) string {
	if !slices.ContainsFunc(l.VIPs, func(v VIP) bool { return v.Port == iperfPort }) {
		return ""
	}
	return client + "iperf3 -c " + strings.Trim(l.vipHost(), "[]")
}

// traceCommand traces a first packet of the client to the web VIP through
// lb1. Empty if there is no such VIP.
func (l *Lab) traceCommand() string {
	if l.faild() {
		return ""
	}
	for _, v := range l.VIPs {
		if v.Port != httpPort || v.Protocol != "tcp" || v.Address.Is6() != l.IPv6 {
			continue
		}
		source := clientAddress4
		if l.IPv6 {
			source = clientAddress6
		}
		return fmt.Sprintf("trace --name %s --state-dir %s 'tcp %s > %s syn'", l.daemonName("lb1"), l.path("state"),
			net.JoinHostPort(source, "4711"), netip.AddrPortFrom(v.Address, uint16(v.Port)))
	}
	return ""
}

// shellQuoted keeps a shell from taking an IPv6 address's brackets for a
// pattern of file names.
func shellQuoted(url string) string {
	if strings.ContainsAny(url, "[]") {
		return "'" + url + "'"
	}
	return url
}

// vipHost is the host part of URL.
func (l *Lab) vipHost() string {
	host := strings.TrimSuffix(strings.TrimPrefix(l.URL(), "http://"), "/")
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return host
}

// Exec becomes the command, in the machine's network: it does not return but
// for an error. The exit status, the terminal and signals are the command's.
func (l *Lab) Exec(machine string, args []string) error {
	if err := needRoot(); err != nil {
		return err
	}
	namespace, err := l.Machine(machine)
	if err != nil {
		return err
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return netspace.In(namespace, func() error {
		if err := syscall.Exec(program, args, os.Environ()); err != nil {
			return fmt.Errorf("run %s: %w", program, err)
		}
		return nil
	})
}
