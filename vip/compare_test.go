package vip_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/vip"
)

// choosing are the rooms where choices may be told apart by name: policy/ is the
// policies' models as scheme/ is the schemes', and makes each by its name.
var choosing = []string{"vip", "scheme", "policy", "tables", "bpf"}

// Nobody else compares a scheme, policy, carrier or forwarding: what a choice
// means is a property of its row. Looked for are == and != with a name of one, or
// with a constant that stands for one, and switches over them.
func TestNobodyCompares(t *testing.T) {
	files := parseAll(t, "..")
	constants := chosen(files)
	for name, f := range files {
		room, _, _ := strings.Cut(name, "/")
		if slices.Contains(choosing, room) {
			continue
		}
		for _, at := range compares(f, path.Dir(name), constants) {
			t.Errorf("%s:%d compares a choice by name: ask a property of its row in package vip", name, f.set.Position(at).Line)
		}
	}
}

// A test of the test: what it must see, and what it must not.
func TestCompares(t *testing.T) {
	for code, want := range map[string]int{
		`v.Scheme == vip.Beamer`:                                  1,
		`vip.IPIP != v.Forwarding`:                                1,
		`string(v.Scheme) == "faild"`:                             1,
		`v.Scheme == mine`:                                        1,
		`bpf.Scheme(e.Scheme) != bpf.SchemeBeamer`:                1,
		`uint8(bpf.FwdGUE) == l.Forwarding`:                       1,
		`v.Policy == "hash"`:                                      1,
		`flag == "hash"`:                                          0,
		`v.Scheme.Row().Hops`:                                     0,
		`v.Protocol == vip.TCP`:                                   0,
		`v.Scheme == w.Scheme`:                                    0,
		`func() bool { switch x { case "jet": }; return true }()`: 1,
	} {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, "x.go", `package x
import ("github.com/fairlead/fairlead/bpf"; "github.com/fairlead/fairlead/vip")
const mine = "beamer"
var _ = `+code, 0)
		if err != nil {
			t.Fatal(err)
		}
		files := parseAll(t, "../bpf", "../vip")
		files["x/x.go"] = file{set, f}
		if got := compares(files["x/x.go"], "x", chosen(files)); len(got) != want {
			t.Errorf("%s: found %d times, want %d", code, len(got), want)
		}
	}
}

const module = "github.com/fairlead/fairlead/"

type file struct {
	set *token.FileSet
	*ast.File
}

// parseAll parses what is compiled into programs under the folders, by path from
// the repository's root.
func parseAll(t *testing.T, roots ...string) map[string]file {
	t.Helper()
	files := map[string]file{}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, name, nil, 0)
			files[strings.TrimPrefix(filepath.ToSlash(name), "../")] = file{set, f}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// chosen are the constants that stand for a choice, by folder.
func chosen(files map[string]file) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for name, f := range files {
		dir := path.Dir(name)
		if dir == "wire" {
			continue // what a packet looks like
		}
		for _, decl := range f.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			typed := "" // where values are left out, iota's type goes on
			for _, spec := range g.Specs {
				s := spec.(*ast.ValueSpec)
				if id, ok := s.Type.(*ast.Ident); ok {
					typed = id.Name
				} else if len(s.Values) > 0 {
					typed = ""
				}
				for i, id := range s.Names {
					is := slices.Contains([]string{"Scheme", "Policy", "Carrier", "Forwarding"}, typed)
					if i < len(s.Values) {
						is = is || isName(s.Values[i], "")
					}
					if is {
						if all[dir] == nil {
							all[dir] = map[string]bool{}
						}
						all[dir][id.Name] = true
					}
				}
			}
		}
	}
	return all
}

// isName: e is the name of a choice. "hash" is also a word of its own.
func isName(e ast.Expr, beside string) bool {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return false
	}
	text, _ := strconv.Unquote(lit.Value)
	if text == string(vip.ByTheHash) {
		return strings.Contains(strings.ToLower(beside), "policy")
	}
	names := slices.Concat(vip.SchemeNames(), vip.PolicyNames(), vip.ForwardingNames())
	for _, c := range vip.Carriers() {
		names = append(names, string(c.Name))
	}
	return slices.Contains(names, text)
}

// compares is where f, of a folder, tells choices apart.
func compares(f file, dir string, constants map[string]map[string]bool) (at []token.Pos) {
	imports := map[string]string{} // by the name here, its folder
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		imports[name] = strings.TrimPrefix(p, module)
	}
	var is func(e ast.Expr, beside string) bool
	is = func(e ast.Expr, beside string) bool {
		switch e := e.(type) {
		case *ast.Ident:
			return constants[dir][e.Name]
		case *ast.SelectorExpr:
			id, ok := e.X.(*ast.Ident)
			return ok && constants[imports[id.Name]][e.Sel.Name]
		case *ast.CallExpr: // a conversion
			return len(e.Args) == 1 && is(e.Args[0], beside)
		case *ast.ParenExpr:
			return is(e.X, beside)
		}
		return isName(e, beside)
	}
	ast.Inspect(f.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if (n.Op == token.EQL || n.Op == token.NEQ) && (is(n.X, last(n.Y)) || is(n.Y, last(n.X))) {
				at = append(at, n.OpPos)
			}
		case *ast.SwitchStmt:
			if n.Tag == nil {
				return true
			}
			for _, c := range n.Body.List {
				if slices.ContainsFunc(c.(*ast.CaseClause).List, func(e ast.Expr) bool { return is(e, last(n.Tag)) }) {
					at = append(at, c.Pos())
				}
			}
		}
		return true
	})
	return at
}

// last is the last name in e.
func last(e ast.Expr) (name string) {
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			name = id.Name
		}
		return true
	})
	return name
}
