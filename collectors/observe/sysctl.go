package observe

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sysctlTrees are below /proc/sys.
var sysctlTrees = []string{"net/core", "net/ipv4", "net/ipv6", "net/netfilter", "net/mptcp"}

// perInterface are trees with a directory for each interface, and one for those
// that are yet to come.
var perInterface = []string{"net/ipv4/conf", "net/ipv4/neigh", "net/ipv6/conf", "net/ipv6/neigh"}

// readSysctls reads all values that concern the network. Of an interface only
// those are kept that differ from what a new interface gets.
func (r *Reading) readSysctls() {
	for _, tree := range sysctlTrees {
		values := make(map[string]string)
		r.walkSysctls(tree, values)
		for name, value := range values {
			r.set(name, value)
		}
	}
	for _, tree := range perInterface {
		r.readInterfaces(tree)
	}
}

func sysctlName(path string) string { return strings.ReplaceAll(path, "/", ".") }

// walkSysctls reads a tree but for those in it that are read per interface.
func (r *Reading) walkSysctls(tree string, values map[string]string) {
	entries, err := os.ReadDir("/proc/sys/" + tree)
	if err != nil {
		r.unread(sysctlName(tree), err)
		return
	}
	for _, entry := range entries {
		path := tree + "/" + entry.Name()
		if !entry.IsDir() {
			r.readSysctl(path, values)
		} else if !slices.Contains(perInterface, path) {
			r.walkSysctls(path, values)
		}
	}
}

func (r *Reading) readSysctl(path string, values map[string]string) {
	name := sysctlName(path)
	if leftOut(name) {
		return // also what must not be read
	}
	value, err := readText("/proc/sys/" + path)
	if err != nil {
		r.unread(name, err)
		return
	}
	values[name] = value
}

// readInterfaces reads the directories of one tree.
func (r *Reading) readInterfaces(tree string) {
	entries, err := os.ReadDir("/proc/sys/" + tree)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		r.unread(sysctlName(tree), err)
		return
	}
	defaults := make(map[string]string)
	r.walkSysctls(tree+"/default", defaults)
	for _, entry := range entries {
		values := defaults
		if entry.Name() != "default" {
			values = make(map[string]string)
			r.walkSysctls(tree+"/"+entry.Name(), values)
		}
		prefix := sysctlName(tree) + "."
		for name, value := range values {
			base := strings.TrimPrefix(name, prefix+entry.Name()+".")
			if entry.Name() == "default" || entry.Name() == "all" || value != defaults[prefix+"default."+base] {
				r.set(name, value)
			}
		}
	}
}

// directory lists what is in a directory, sorted; nothing if it is not there.
func directory(path string) (names []string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// link is the last part of where a symbolic link leads; empty if it is none.
func link(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}
