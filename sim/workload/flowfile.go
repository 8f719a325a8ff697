package workload

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/wire"
)

// A flow file is CSV with a line for each connection, in any order. Its first
// line names the columns, in any order:
//
//	start,duration,source,source_port,destination,destination_port,protocol,bytes
//	0.000000,1.5,192.0.2.7,51234,203.0.113.80,443,tcp,6320
//
// start and duration are seconds with up to nine decimals, or with an exponent
// (6.1e-05) and what floating point can hold; start may count
// from anywhere (the epoch, say), as the earliest becomes time 0. source is
// the client. protocol (tcp or udp; without the column tcp) and bytes may be
// missing as columns, but no field may be empty. Lines that begin with # are
// comments.
var flowColumns = []flowColumn{
	{"start", false, "write seconds, 0 or more, as 12.5", func(r *flowRow, s string) (ok bool) { r.Start, ok = seconds(s); return }},
	{"duration", false, "write seconds, 0 or more, as 12.5", func(r *flowRow, s string) (ok bool) { r.Duration, ok = seconds(s); return }},
	{"source", false, "write the client's IP address", func(r *flowRow, s string) (ok bool) { r.source, ok = address(s); return }},
	{"source_port", false, "write 0 to 65535", func(r *flowRow, s string) (ok bool) { r.sourcePort, ok = port(s); return }},
	{"destination", false, "write the VIP's IP address", func(r *flowRow, s string) (ok bool) { r.destination, ok = address(s); return }},
	{"destination_port", false, "write 0 to 65535", func(r *flowRow, s string) (ok bool) { r.destinationPort, ok = port(s); return }},
	{"protocol", true, "write tcp or udp", func(r *flowRow, s string) (ok bool) { r.Protocol, ok = protocol(s); return }},
	{"bytes", true, "write a whole number, 0 or more", func(r *flowRow, s string) (ok bool) { r.Bytes, ok = whole(s); return }},
}

type flowColumn struct {
	name     string
	optional bool
	remedy   string
	read     func(*flowRow, string) (ok bool)
}

// flowRow is a line's connection while it is read.
type flowRow struct {
	Flow
	source, destination         netip.Addr
	sourcePort, destinationPort uint16
}

// columnNames are the columns' names, in the order of the documentation.
func columnNames(which func(flowColumn) bool) []string {
	var names []string
	for _, c := range flowColumns {
		if which(c) {
			names = append(names, c.name)
		}
	}
	return names
}

func all(flowColumn) bool        { return true }
func optional(c flowColumn) bool { return c.optional }

// ReadFlowFile reads a flow file. Errors are one line, with the file's line
// and column, the value and what would be right.
func ReadFlowFile(r io.Reader, name string) (*Record, error) {
	f := flowFile{name: name, csv: csv.NewReader(textOf(r))}
	f.csv.Comment = '#'
	f.csv.TrimLeadingSpace = true
	f.csv.ReuseRecord = true
	f.csv.FieldsPerRecord = -1 // missing ones are named below
	if err := f.header(); err != nil {
		return nil, err
	}
	record := &Record{Name: name}
	for {
		row, err := f.csv.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, f.broken(err)
		}
		flow, err := f.flow(row)
		if err != nil {
			return nil, err
		}
		record.Flows = append(record.Flows, flow)
	}
	if len(record.Flows) == 0 {
		return nil, fmt.Errorf("%s:1: no connections below the columns' names; write a line for each", name)
	}
	return record.settle(), nil
}

type flowFile struct {
	name    string
	csv     *csv.Reader
	columns []flowColumn // as the file has them
	row     []string
}

func (f *flowFile) broken(err error) error {
	var e *csv.ParseError
	if errors.As(err, &e) {
		return fmt.Errorf("%s:%d: column %d: %w", f.name, e.Line, e.Column, e.Err)
	}
	return fmt.Errorf("%s: %w", f.name, err)
}

func (f *flowFile) header() error {
	row, err := f.csv.Read()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s:1: the file is empty; its first line names the columns: %s", f.name, strings.Join(columnNames(all), ","))
	} else if err != nil {
		return f.broken(err)
	}
	line, _ := f.csv.FieldPos(0)
	for _, name := range row {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(flowColumns, func(c flowColumn) bool { return c.name == name })
		if i < 0 {
			return fmt.Errorf("%s:%d: column %q: the first line names the columns, which are %s", f.name, line, name, strings.Join(columnNames(all), ","))
		}
		if f.has(name) {
			return fmt.Errorf("%s:%d: column %q is there twice; leave one out", f.name, line, name)
		}
		f.columns = append(f.columns, flowColumns[i])
	}
	for _, c := range flowColumns {
		if !c.optional && !f.has(c.name) {
			return fmt.Errorf("%s:%d: column %q is missing; add it (only %s may be missing)", f.name, line, c.name, strings.Join(columnNames(optional), " and "))
		}
	}
	return nil
}

func (f *flowFile) has(name string) bool { return f.index(name) >= 0 }

func (f *flowFile) index(name string) int {
	return slices.IndexFunc(f.columns, func(c flowColumn) bool { return c.name == name })
}

// errorf says what is wrong with the value of a column.
func (f *flowFile) errorf(i int, remedy string) error {
	line, _ := f.csv.FieldPos(min(i, len(f.row)-1))
	if i >= len(f.row) || strings.TrimSpace(f.row[i]) == "" {
		return fmt.Errorf("%s:%d: column %s is empty; %s, or leave the connection out", f.name, line, f.columns[i].name, remedy)
	}
	return fmt.Errorf("%s:%d: column %s: %q; %s", f.name, line, f.columns[i].name, f.row[i], remedy)
}

// flow reads one line.
func (f *flowFile) flow(row []string) (Flow, error) {
	f.row = row
	if len(row) > len(f.columns) {
		line, _ := f.csv.FieldPos(len(f.columns))
		return Flow{}, fmt.Errorf("%s:%d: %d fields under %d columns; quote a field that has a comma", f.name, line, len(row), len(f.columns))
	}
	r := flowRow{Flow: Flow{Protocol: wire.ProtoTCP}}
	for i, c := range f.columns {
		value := ""
		if i < len(row) {
			value = strings.TrimSpace(row[i])
		}
		if !c.read(&r, value) {
			return Flow{}, f.errorf(i, c.remedy)
		}
	}
	if r.source.Is4() != r.destination.Is4() {
		return Flow{}, f.errorf(f.index("destination"), "write an address of the source's family")
	}
	r.Source, r.Destination = netip.AddrPortFrom(r.source, r.sourcePort), netip.AddrPortFrom(r.destination, r.destinationPort)
	return r.Flow, nil
}

// seconds reads a decimal number as whole nanoseconds, digit by digit: as
// floating point, seconds since 1970 are only good to microseconds. Digits
// after the ninth decimal are cut off.
func seconds(s string) (sim.Time, bool) {
	if strings.ContainsAny(s, "eE") {
		x, err := strconv.ParseFloat(s, 64)
		ns := x * float64(sim.Second)
		return sim.Time(ns), err == nil && ns >= 0 && ns < math.MaxInt64/2 && !strings.ContainsAny(s, "xX_+nN")
	}
	before, decimals, _ := strings.Cut(s, ".")
	digits := before + decimals
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, ok := whole((digits + "000000000")[:len(before)+9])
	return sim.Time(n), ok && n < math.MaxInt64/2 // start + duration fits
}

// whole reads a number of digits alone.
func whole(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strings.Trim(s, "0123456789") == ""
}

func address(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	return a.Unmap(), err == nil && a.Zone() == ""
}

func port(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil
}

func protocol(s string) (uint8, bool) {
	switch strings.ToLower(s) {
	case "tcp", "6":
		return wire.ProtoTCP, true
	case "udp", "17":
		return wire.ProtoUDP, true
	}
	return 0, false
}
