package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A declaredEvent is one of events.yml, as far as the agent has part in it.
type declaredEvent struct {
	Flow bool
	Keys map[string]struct{ Optional bool }
}

// writtenEvents are the keys that the code writes with each event. An event of
// no flow has none of that name; one whose flow may be empty has it at times.
type writtenEvents map[string]map[string]bool

// TestEvents: the agent writes each event that events.yml declares, with each of its keys, and no others.
func TestEvents(t *testing.T) {
	b, err := os.ReadFile("../src/dumbbell/facts/events.yml")
	if err != nil {
		t.Fatal(err)
	}
	var declared map[string]declaredEvent
	if err := yaml.Unmarshal(b, &declared); err != nil {
		t.Fatal(err)
	}
	written := readEvents(t)
	for _, state := range []string{"done", "failed", "aborted"} { // the last event has the name of the state
		written[state] = map[string]bool{}
		if state != "done" {
			written[state]["reason"] = true
		}
	}
	for name, keys := range written {
		event, known := declared[name]
		if !known {
			t.Errorf("event %s is not declared", name)
			continue
		}
		for key := range keys {
			if _, known := event.Keys[key]; !known && (key != "flow" || !event.Flow) {
				t.Errorf("key %s of event %s is not declared", key, name)
			}
		}
	}
	for name, event := range declared {
		keys, known := written[name]
		if !known {
			t.Errorf("nothing writes event %s", name)
			continue
		}
		for key := range event.Keys {
			if !keys[key] {
				t.Errorf("nothing writes key %s of event %s", key, name)
			}
		}
		if event.Flow && !keys["flow"] {
			t.Errorf("event %s has no flow", name)
		}
	}
}

func readEvents(t *testing.T) writtenEvents {
	t.Helper()
	found, files := writtenEvents{}, token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok {
				found.add(function)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// add adds the events of one function, in which a variable may gather their keys.
func (w writtenEvents) add(function *ast.FuncDecl) {
	gathered := make(map[string][]string) // by variable
	ast.Inspect(function, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		if !ok {
			return true
		}
		for i, left := range assign.Lhs {
			switch left := left.(type) {
			case *ast.Ident:
				if i < len(assign.Rhs) {
					gathered[left.Name] = append(gathered[left.Name], attributes(assign.Rhs[i])...)
				}
			case *ast.IndexExpr:
				if base, ok := left.X.(*ast.Ident); ok {
					gathered[base.Name] = append(gathered[base.Name], text(left.Index)...)
				}
			}
		}
		return true
	})
	ast.Inspect(function, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		_, method := called(call.Fun)
		args := call.Args
		if method == "EventAt" {
			args = args[1:]
		} else if method != "Event" {
			return true
		}
		for _, name := range text(args[0]) {
			if w[name] == nil {
				w[name] = make(map[string]bool)
			}
			keys := attributes(args[2])
			if variable, ok := args[2].(*ast.Ident); ok {
				keys = gathered[variable.Name]
			}
			for _, key := range keys {
				w[name][key] = true
			}
			if !slices.Equal(text(args[1]), []string{""}) {
				w[name]["flow"] = true
			}
		}
		return true
	})
}

// attributes are the keys of a literal of that type.
func attributes(e ast.Expr) (keys []string) {
	literal, ok := e.(*ast.CompositeLit)
	if !ok || typeName(literal.Type) != "Attributes" {
		return nil
	}
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			keys = append(keys, text(pair.Key)...)
		}
	}
	return keys
}

// text is that of a literal string; nothing if it is none.
func text(e ast.Expr) []string {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return nil
	}
	s, err := strconv.Unquote(literal.Value)
	if err != nil {
		return nil
	}
	return []string{s}
}
