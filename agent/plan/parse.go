package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// A Require remembers what is wrong with a plan unless it is ok: the key, and
// why in the words of fmt.Sprintf.
type Require func(ok bool, key, format string, a ...any)

// Read reads and checks a plan; more checks what depends on the kinds of its
// flows and actions.
func Read(path string, more func(*Plan, Require)) (*Plan, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	plan, err := Parse(b, more)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return plan, nil
}

// Parse decodes and checks a plan likewise.
func Parse(b []byte, more func(*Plan, Require)) (*Plan, error) {
	plan := new(Plan)
	if err := DecodeStrict(b, plan); err != nil {
		return nil, err
	}
	return plan, plan.check(more)
}

// DecodeStrict decodes exactly one JSON value without unknown keys. Errors
// name the key, and the line where the decoder knows it.
func DecodeStrict(b []byte, v any) error {
	line := func(offset int64) int { return 1 + bytes.Count(b[:offset], []byte("\n")) }
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("line %d: %w", line(e.Offset), err)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("line %d: %s: a JSON %s where a %v is wanted", line(e.Offset), e.Field, e.Value, e.Type)
	}
	if err != nil {
		return err
	}
	if _, err = d.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}

// Name is what may become part of a file name and of a tag.
var Name = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// check returns all that is wrong with a plan, each with its key.
func (p *Plan) check(more func(*Plan, Require)) error {
	var problems []error
	require := func(ok bool, key, format string, a ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, a...)))
		}
	}
	for key, value := range map[string]string{"run_id": p.RunID, "holder": p.Holder, "point": p.Point, "host": p.Host, "phase": p.Phase} {
		require(value != "", key, "missing")
	}
	require(p.Duration > 0, "duration_ns", "must be positive, is %d", p.Duration)
	require(p.SamplingInterval > 0, "sampling_interval_ns", "must be positive, is %d", p.SamplingInterval)
	_, known := p.Hosts[p.Host]
	require(known, "hosts", "has no host %q", p.Host)

	for i := range p.Flows {
		f, key := &p.Flows[i], FlowKey(i)
		require(Name.MatchString(f.Name), key+".name", "%q is not a name of letters, digits, _ . and -", f.Name)
		require(p.Flow(f.Name) == f, key+".name", "%q occurs twice", f.Name)
		require(f.SrcHost != "", key+".src_host", "missing")
		require(f.DstHost != "", key+".dst_host", "missing")
		require(f.Src.IsValid(), key+".src", "missing")
		require(f.Dst.IsValid(), key+".dst", "missing")
		require(f.Src.Is4() == f.Dst.Is4(), key, "src %v and dst %v are of different families", f.Src, f.Dst)
		require(f.ServerPort > 0, key+".server_port", "missing")
		require(f.Streams >= 1, key+".streams", "must be at least 1, is %d", f.Streams)
		require(int(f.ClientPort)+f.Streams-1 <= 65535, key+".client_port", "%d streams from port %d end beyond 65535", f.Streams, f.ClientPort)
		require(f.Start >= 0, key+".start_ns", "must not be before t0, is %d", f.Start)
		require(f.Connect == nil || *f.Connect < f.Start, key+".connect_ns", "must be before the flow's start")
	}
	var seen []string
	for i, a := range p.Own().Actions {
		require(!slices.Contains(seen, a.String()), p.ActionKey(i), "%s occurs twice", a)
		seen = append(seen, a.String())
	}
	require(Batchable(p.Own().Restore), fmt.Sprintf("hosts[%q].restore", p.Host), "a word is empty, or has blanks, quotes or #")
	for i, name := range p.Own().Sample.TCP {
		key, f := p.SampleKey(i), p.Flow(name)
		require(f != nil, key, "there is no flow %q", name)
		require(f == nil || f.SrcHost == p.Host || f.DstHost == p.Host, key, "%s neither starts nor ends here", name)
	}
	more(p, require)
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}

// FlowKey is the key of a flow, by its place.
func FlowKey(i int) string { return fmt.Sprintf("flows[%d]", i) }

// ActionKey is the key of an action of this host, by its place.
func (p *Plan) ActionKey(i int) string { return fmt.Sprintf("hosts[%q].actions[%d]", p.Host, i) }

// SampleKey is that of a flow that this host samples.
func (p *Plan) SampleKey(i int) string { return fmt.Sprintf("hosts[%q].sample.tcp[%d]", p.Host, i) }
