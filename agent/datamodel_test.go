package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"dumbbell/collectors/ebpf"
	"dumbbell/collectors/tcpinfo"
)

// names are what the code writes, each with where it does.
type names struct{ measurements, tags, fields map[string]string }

// TestDataModel: docs/data-model.md names every measurement, tag and field that
// the code writes, and no tag that it does not.
func TestDataModel(t *testing.T) {
	written := readNames(t, ".", "../collectors", "../traffic", "../transports/atou/record")
	for _, f := range tcpinfo.Fields {
		written.fields[f.Name] = "tcpinfo.Fields"
	}
	for _, name := range ebpf.Fields {
		written.fields[name] = "ebpf.Fields"
	}
	document, err := os.ReadFile("../docs/data-model.md")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(document), "")
	documented := words(text)
	for kind, names := range map[string]map[string]string{
		"measurement": written.measurements, "tag": written.tags, "field": written.fields,
	} {
		if len(names) < 5 {
			t.Errorf("only %d names of kind %s were found", len(names), kind)
		}
		for name, where := range names {
			if !documented(name) {
				t.Errorf("%s `%s` (%s) is not in docs/data-model.md", kind, name, where)
			}
		}
	}
	tagLists := regexp.MustCompile("\\btags?(?: of the host and)?((?:,? (?:and )?`\\w+`(?: \\([^)]*\\))?)+)").FindAllStringSubmatch(text, -1)
	if len(tagLists) < 5 {
		t.Errorf("only %d lists of tags were found", len(tagLists))
	}
	for _, list := range tagLists {
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(list[1], ""), -1) {
			if _, ok := written.tags[m[1]]; !ok {
				t.Errorf("docs/data-model.md has a tag `%s`, which nothing writes: %s", m[1], list[0])
			}
		}
	}
}

// words are those in backquotes: a_{b,c}_d is two, and e_* all that begin so.
func words(text string) (has func(string) bool) {
	var all, beginnings []string
	for _, quoted := range regexp.MustCompile("`[^`]+`").FindAllString(text, -1) {
		for _, word := range regexp.MustCompile(`[\w.]*(?:\{[\w,]+\}\w*)?\*?`).FindAllString(strings.ReplaceAll(quoted, `"`, " "), -1) {
			before, rest, braces := strings.Cut(word, "{")
			inner, after, _ := strings.Cut(rest, "}")
			switch {
			case strings.HasSuffix(word, "*"):
				beginnings = append(beginnings, strings.TrimSuffix(word, "*"))
			case braces:
				for part := range strings.SplitSeq(inner, ",") {
					all = append(all, before+part+after)
				}
			default:
				all = append(all, word)
			}
		}
	}
	return func(word string) bool {
		return slices.Contains(all, word) || slices.ContainsFunc(beginnings, func(b string) bool { return b != "" && strings.HasPrefix(word, b) })
	}
}

func readNames(t *testing.T, directories ...string) names {
	t.Helper()
	found := names{map[string]string{}, map[string]string{}, map[string]string{}}
	files := token.NewFileSet()
	for _, d := range directories {
		err := filepath.WalkDir(d, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, 0)
			if err == nil {
				ast.Inspect(file, func(n ast.Node) bool { found.add(n, path); return true })
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func (n *names) add(node ast.Node, where string) {
	put := func(in map[string]string, e ast.Expr) {
		for _, name := range text(e) {
			in[name] = where
		}
	}
	switch node := node.(type) {
	case *ast.CallExpr:
		of, name := called(node.Fun)
		switch {
		case name == "NewSeries" && of != "web100":
			put(n.measurements, node.Args[0])
		case name == "With":
			for i := 0; i < len(node.Args); i += 2 {
				put(n.tags, node.Args[i])
			}
		case strings.HasSuffix(of, "rows") && slices.Contains([]string{"Int", "Float", "Bool", "String"}, name):
			put(n.fields, node.Args[0])
		case name == "addCount":
			put(n.fields, node.Args[1])
		}
	case *ast.CompositeLit:
		for _, e := range node.Elts {
			if pair, ok := e.(*ast.KeyValueExpr); ok && typeName(node.Type) == "Tags" {
				put(n.tags, pair.Key)
			}
		}
	case *ast.IndexExpr: // tags["name"] = ...
		if base, ok := node.X.(*ast.Ident); ok && base.Name == "tags" {
			put(n.tags, node.Index)
		}
	}
}

// called is what a call calls: f, or x.f, of which x is the last name.
func called(e ast.Expr) (of, name string) {
	switch e := e.(type) {
	case *ast.Ident:
		return "", e.Name
	case *ast.SelectorExpr:
		_, of = called(e.X)
		return of, e.Sel.Name
	}
	return "", ""
}

func typeName(e ast.Expr) string {
	_, name := called(e)
	return name
}
