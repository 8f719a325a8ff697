package tracking

import "github.com/fairlead/fairlead/chash"

// ReportedRow is a figure of others for a horizon of 10 %, 1.6 M flows and
// 34.1 M packets, which tables and plots show beside ours.
type ReportedRow struct {
	By      string     `json:"by"`
	Servers int        `json:"servers"`
	Hash    chash.Kind `json:"hash"`
	Scheme  string     `json:"scheme"`
	// Zero: not reported.
	Oversubscription float64 `json:"oversubscription,omitempty"`
	Tracked          float64 `json:"tracked,omitempty"`
	Mpps             float64 `json:"mpps"`
}

// reportedServers is how many servers the reported figures are for.
const reportedServers = 500

// Who reports.
const (
	// ByPaper is JET's slides, "Balance, Tracking and Rate": real trace,
	// their machine.
	ByPaper = "paper"
	// ByAuthorsCode is the authors' C++ over the synthetic trace of the same
	// counts, on the kind of machine that Fairlead is developed on.
	ByAuthorsCode = "authors' code"
)

// Reported lists what others report.
func Reported() []ReportedRow {
	const hrw, anchor, maglev = chash.KindTableHRW, chash.KindAnchor, chash.KindMaglev
	return []ReportedRow{
		{ByPaper, reportedServers, hrw, SchemeFullCT, 1.139, 1_602_007, 22.883},
		{ByPaper, reportedServers, hrw, SchemeJET, 1.139, 145_378, 45.567},
		{ByPaper, reportedServers, anchor, SchemeFullCT, 1.052, 1_602_007, 22.702},
		{ByPaper, reportedServers, anchor, SchemeJET, 1.052, 145_543, 30.856},
		{ByPaper, reportedServers, maglev, SchemeFullCT, 1.054, 1_602_007, 23.446},
		{ByAuthorsCode, reportedServers, hrw, SchemeFullCT, 0, 0, 10.8},
		{ByAuthorsCode, reportedServers, hrw, SchemeJET, 0, 145_320, 27.1},
		{ByAuthorsCode, reportedServers, anchor, SchemeFullCT, 0, 0, 11.5},
		{ByAuthorsCode, reportedServers, anchor, SchemeJET, 0, 145_674, 32.8},
	}
}
