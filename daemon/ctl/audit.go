package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/api/fairleadv1"
)

// audit is who changed what, or tried to, as JSON lines in the controller's state
// folder and in its log. A file's text, which may hold secrets, is not in it.
type audit struct {
	log  *slog.Logger
	file *lumberjack.Logger

	mu     sync.Mutex
	denied map[string]*denials // by caller
}

// auditName is the file's; what is full is set aside as audit-TIME.jsonl.
const (
	auditName  = "audit.jsonl"
	auditMiB   = 8 // of each file
	auditFiles = 8 // that are set aside
	// maxField and maxError bound what one line tells of a field and an error, in bytes,
	// and maxList of how many entries of a list.
	maxField = 1 << 10
	maxError = 1 << 10
	maxList  = 16
	// deniedMost is how many denied calls of one caller are written down in
	// deniedEvery; the others are counted, so that nobody writes the file full.
	deniedMost  = 20
	deniedEvery = time.Minute
	// deniedCallers bounds how many are remembered for that.
	deniedCallers = 1024
)

type denials struct {
	since time.Time
	n     int
}

// auditLine is one call.
type auditLine struct {
	At   time.Time `json:"at"`
	Who  string    `json:"who"`
	Role string    `json:"role"`
	Call string    `json:"call"`
	// What is the request's fields.
	What json.RawMessage `json:"what,omitempty"`
	// From and To are assignment versions, where the call came so far.
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"`
	// Outcome is done, denied, or connect's code.
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"`
	// Unwritten is how many denied calls of the caller before are not written
	// down.
	Unwritten int `json:"unwritten,omitempty"`
}

func newAudit(path string, log *slog.Logger) *audit {
	return &audit{log: log, denied: map[string]*denials{},
		file: &lumberjack.Logger{Filename: path, MaxSize: auditMiB, MaxBackups: auditFiles}}
}

func (a *audit) close() error { return a.file.Close() }

// WrapUnary implements connect.Interceptor.
func (a *audit) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		a.note(ctx, req.Spec().Procedure, req.Any(), resp, err)
		return resp, err
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (a *audit) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		err := next(ctx, conn)
		a.note(ctx, conn.Spec().Procedure, nil, nil, err)
		return err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (*audit) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// note writes a call down that changes something, or was denied.
func (a *audit) note(ctx context.Context, procedure string, request any, response connect.AnyResponse, err error) {
	denied := connect.CodeOf(err) == connect.CodePermissionDenied && err != nil
	if !denied && !access.Changes(procedure) {
		return
	}
	caller := access.From(ctx)
	line := auditLine{At: time.Now().UTC(), Who: caller.Name, Role: caller.Role.String(), Call: procedure, Outcome: "done", What: what(request)}
	if response != nil {
		if r, ok := response.Any().(*fairleadv1.ChangeResponse); ok && r != nil {
			line.From, line.To = r.FromVersion, r.Version
		}
	}
	if err != nil {
		line.Outcome, line.Error = connect.CodeOf(err).String(), short(api.ErrorText(err), maxError)
	}
	if denied {
		line.Outcome = "denied"
		write, unwritten := a.writes(caller.Name, line.At)
		if !write {
			return
		}
		line.Unwritten = unwritten
	}
	a.write(line)
}

// writes says whether a denied call of who is written down, and how many were not.
func (a *audit) writes(who string, now time.Time) (write bool, unwritten int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.denied[who]
	if d == nil {
		if len(a.denied) >= deniedCallers {
			clear(a.denied)
		}
		d = &denials{since: now}
		a.denied[who] = d
	}
	if now.Sub(d.since) > deniedEvery {
		unwritten = max(0, d.n-deniedMost)
		*d = denials{since: now}
	}
	d.n++
	return d.n <= deniedMost, unwritten
}

func (a *audit) write(line auditLine) {
	a.log.Info("audit", "who", line.Who, "role", line.Role, "call", line.Call, "what", string(line.What),
		"from", line.From, "to", line.To, "outcome", line.Outcome, "error", line.Error)
	data, err := json.Marshal(line)
	if err == nil {
		_, err = a.file.Write(append(data, '\n'))
	}
	if err != nil {
		a.log.Error("the audit log takes no line; the log above has it", "file", a.file.Filename, "error", err)
	}
}

// what is a request's fields, without texts of files. What is too long is cut, for nobody
// hides by it what he asked for.
func what(request any) json.RawMessage {
	m, ok := request.(proto.Message)
	if !ok {
		return nil
	}
	m = proto.Clone(m)
	r := m.ProtoReflect()
	r.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Name() == "text":
			r.Clear(f)
		case f.Kind() != protoreflect.StringKind:
		case !f.IsList():
			r.Set(f, protoreflect.ValueOfString(short(v.String(), maxField)))
		default:
			r.Set(f, protoreflect.ValueOfList(shortList(v.List(), r.NewField(f).List())))
		}
		return true
	})
	data, err := protojson.Marshal(m)
	if err != nil { // never: all texts are valid
		return nil
	}
	return data
}

// shortList copies the first of all to into, and how many more there are.
func shortList(all, into protoreflect.List) protoreflect.List {
	for i := range min(all.Len(), maxList) {
		into.Append(protoreflect.ValueOfString(short(all.Get(i).String(), maxField/4)))
	}
	if more := all.Len() - maxList; more > 0 {
		into.Append(protoreflect.ValueOfString(fmt.Sprintf("and %d more", more)))
	}
	return into
}

// short is text, cut off where it is too long, between two characters.
func short(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "")
}
